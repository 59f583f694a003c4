// config_fakes: plugins, devices and short cuts for the tests of the config.
#ifndef KILN_TESTS_CONFIG_FAKES_H
#define KILN_TESTS_CONFIG_FAKES_H

#include "config/config.h"

#include <stddef.h>
#include <stdint.h>

#define FAKE_COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

// cpu: exact (every slot), exact_q8 (matmul). attention: fap1, fap2 (attention.prefill, geometry).
// matmul: mmq (two types, BM), f16 (every type), fused (quantize). mine: fap2 once more.
extern const struct kiln_variant fake_exact, fake_exact_matmul, fake_exact_q8, fake_fap1, fake_fap2,
        fake_mmq, fake_f16, fake_fused;
extern const struct kiln_plugin fake_cpu, fake_attention, fake_matmul, fake_mine;

// All but mine; all; cpu alone.
extern const struct kiln_catalog fake_catalog, fake_catalog_two_fap2, fake_catalog_cpu;
extern const struct kiln_device fake_dev_cpu, fake_dev_h200, fake_dev_sim;

// Each fails the test on an error.
struct kiln_config *fake_config(void);
void fake_add(struct kiln_config *config, const char *name, const char *text);
void fake_set(struct kiln_config *config, const char *assignment);
void fake_check(struct kiln_config *config, const struct kiln_catalog *against);
// One layer named x.ini, checked against fake_catalog.
struct kiln_config *fake_checked(const char *text);

// A call with m 64, n 4096, k 2048, head size 128, role ffn_down in layer 2.
struct kiln_bind_query fake_query(const char *slot, const struct kiln_device *device);
// The binding in place `skip`; NULL when there is none.
const struct kiln_binding *fake_bind_query(
        struct kiln_config *config, const struct kiln_bind_query *call, unsigned skip);
const struct kiln_binding *fake_bind(
        struct kiln_config *config, const char *slot, const struct kiln_device *device);

#endif
