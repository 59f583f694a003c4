// rope: the frequencies that rotary position embedding turns with, one a pair of dimensions, with
// the scalings that stretch a model's context. The angle of pair i at position p is p * freqs[i].
#include "model/model.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// The pair at which a head's rotation makes `turns` full turns over the original context (YaRN,
// section 3.2).
static double pair_at_turns(const struct kiln_model_params *p, double base, double turns) {
    const double two_pi = 6.283185307179586;
    return p->rope_dims * log(p->rope_ctx_orig / (turns * two_pi)) / (2.0 * log(base));
}

// How far pair i keeps its own frequency (1) or takes the stretched one (0).
static double yarn_keep(const struct kiln_model_params *p, double base, uint32_t pair) {
    double low = floor(pair_at_turns(p, base, (double)p->rope_beta_fast));
    double high = ceil(pair_at_turns(p, base, (double)p->rope_beta_slow));
    low = low < 0 ? 0 : low;
    high = high > p->rope_dims - 1 ? p->rope_dims - 1 : high;
    double span = high - low < 0.001 ? 0.001 : high - low;
    double ramp = (pair - low) / span;
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return 1.0 - ramp;
}

static double scaled_freq(
        const struct kiln_model_params *p, double base, uint32_t pair, double freq) {
    double factor = (double)p->rope_factor;
    switch (p->rope_scaling) {
    case KILN_ROPE_SCALING_LINEAR:
        return freq / factor;
    case KILN_ROPE_SCALING_YARN: {
        double keep = yarn_keep(p, base, pair);
        return freq * keep + freq / factor * (1.0 - keep);
    }
    case KILN_ROPE_SCALING_NONE:
        break;
    }
    return freq;
}

uint32_t kiln_model_rope(struct kiln_model *model, float base, int scaled, float *magnitude) {
    const struct kiln_model_params *p = &model->params;
    struct kiln_graph *graph = &model->graph;
    uint32_t pairs = (uint32_t)p->rope_dims / 2;
    uint32_t index = graph->n_rope;
    *magnitude = 1.0f;
    float *freqs = kiln_calloc(pairs ? pairs : 1, sizeof(*freqs));
    if (!freqs) {
        kiln_err_nomem(&graph->err, "the RoPE frequencies");
        return 0;
    }
    graph->rope[graph->n_rope++] = (struct kiln_rope_table){.freqs = freqs, .len = pairs};
    // llama3's scaling comes as a tensor of divisors instead of keys
    const struct kiln_gguf_tensor *divisors =
            scaled ? kiln_model_tensor_optional(model, -1, "rope_freqs.weight", pairs, 0) : NULL;
    if (graph->err.status != KILN_STATUS_OK) {
        return index;
    }
    for (uint32_t i = 0; i < pairs; i++) {
        double freq = pow((double)base, -2.0 * i / p->rope_dims);
        if (divisors) {
            float divisor;
            memcpy(&divisor, divisors->data + i * sizeof(divisor), sizeof(divisor));
            if (!isfinite(divisor) || divisor <= 0.0f) {
                kiln_err_set(&graph->err, KILN_STATUS_FILE,
                        "%s: tensor 'rope_freqs.weight' at byte %" PRIu64
                        ": value %u is %g; numbers above 0 are needed",
                        kiln_gguf_path(model->gguf), divisors->file_offset, i, (double)divisor);
                return index;
            }
            freq /= (double)divisor;
        }
        freqs[i] = (float)(scaled ? scaled_freq(p, (double)base, i, freq) : freq);
    }
    if (scaled && p->rope_scaling == KILN_ROPE_SCALING_YARN) {
        *magnitude = (1.0f + 0.1f * logf(p->rope_factor)) * p->rope_attn_factor;
    }
    return index;
}
