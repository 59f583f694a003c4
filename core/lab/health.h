// health: the state of the card beside a measurement: clocks, temperature, power, throttling; read
// through NVML, which is opened at run time (libnvidia-ml.so.1) and never linked.
//
// Source of the calls and their constants: NVIDIA Management Library API reference, device queries.
#ifndef KILN_LAB_HEALTH_H
#define KILN_LAB_HEALTH_H

#include "device/device.h"

struct kiln_health_reader;

// -1 where the driver does not tell.
struct kiln_health {
    int32_t sm_mhz, memory_mhz;
    int32_t full_sm_mhz; // the most that the card's SMs can be clocked at
    int32_t celsius;
    double watts;
    uint64_t throttle; // reasons for which the clocks are held down, as NVML's bits; 0: none
};

// For the device `dev`; NULL when there is nothing to read from (a CPU, no NVML): kiln_health_read
// then gives -1 throughout.
struct kiln_health_reader *kiln_health_open(const struct kiln_dev *dev);
void kiln_health_close(struct kiln_health_reader *reader); // NULL is fine
struct kiln_health kiln_health_read(const struct kiln_health_reader *reader);

// The driver of a device with the version that its maker gives it: "CUDA 13.0, 580.65.06"; without
// the latter where NVML does not tell, empty where there is no driver. text: at least 128 bytes.
void kiln_health_driver(const struct kiln_dev *dev, char *text, size_t size);

// Whether the card was held down by heat, or its SM clock left `usual` (MHz, 0: unknown) by more
// than 3 %.
int kiln_health_disturbed(const struct kiln_health *health, int32_t usual);
// Whether it ran at its power limit: its clock then follows the load, and differences that save
// power show as speed.
int kiln_health_capped(const struct kiln_health *health);

#endif
