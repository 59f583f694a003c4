// fake_cuda: what the driver that is none counts.
#ifndef KILN_TESTS_FAKE_CUDA_H
#define KILN_TESTS_FAKE_CUDA_H

enum fake_cuda_counts {
    FAKE_CUDA_MODULES, // loaded now
    FAKE_CUDA_MODULE_LOADS,
    FAKE_CUDA_BYTES, // allocated now
    FAKE_CUDA_STREAMS,
    FAKE_CUDA_LAUNCHES, // queued or recorded
    FAKE_CUDA_GRAPHS,   // held now
    FAKE_CUDA_RECORDS,  // graphs ever made
    FAKE_CUDA_COUNTS
};

// Found by dlsym in the library that KILN_CUDA names.
__attribute__((visibility("default"))) long fake_cuda_count(int what);

#endif
