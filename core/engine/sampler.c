// sampler: filters over a heap of candidates; the vocabulary is never sorted as a whole.
#include "engine/sampler.h"

#include "base/mem.h"

#include <math.h>

#ifdef __clang__
#    pragma STDC FP_CONTRACT OFF // fused products would differ between platforms
#endif

struct candidate {
    float logit;
    int32_t id;
    double weight; // exp(logit - best), set for what top-k and top-p keep
};

struct kiln_sampler {
    struct kiln_sampler_params params;
    uint64_t state[4];
    int32_t *recent; // (repeat_last_n) ring of accepted ids
    size_t n_recent;
    size_t next_recent;
    struct candidate *heap; // scratch, one a vocabulary entry
    size_t heap_cap;
    struct candidate *kept; // scratch, largest first
    size_t kept_len;
    size_t kept_cap;
};

// ---- numbers that are the same everywhere

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

// xoshiro256**
static uint64_t next_random(uint64_t state[4]) {
    uint64_t result = rotl(state[1] * 5, 7) * 9;
    uint64_t t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotl(state[3], 45);
    return result;
}

// exp(x) for x <= 0 in basic operations alone: libm's last bits differ between platforms.
static double exp_of(double x) {
    static const double log2e = 1.4426950408889634;
    static const double ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10;
    static const double inverse[14] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720,
            1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
            1.0 / 6227020800}; // of factorials
    if (x < -700) {
        return 0;
    }
    double k = floor(x * log2e + 0.5);
    double r = (x - k * ln2_high) - k * ln2_low; // |r| <= ln(2) / 2
    double sum = inverse[13];
    for (int n = 12; n >= 0; n--) {
        sum = sum * r + inverse[n];
    }
    return ldexp(sum, (int)k);
}

// ---- creating

struct kiln_sampler_params kiln_sampler_defaults(void) {
    return (struct kiln_sampler_params){.temp = 0.8f,
            .top_k = 40,
            .top_p = 0.95f,
            .min_p = 0.05f,
            .repeat_penalty = 1.0f,
            .repeat_last_n = 64};
}

static enum kiln_status check_params(
        const struct kiln_sampler_params *params, struct kiln_err *err) {
    const struct {
        const char *name;
        double value;
        int good;
        const char *allowed;
    } checks[] = {
            {"temp", (double)params->temp, isfinite(params->temp) && params->temp >= 0, "0 and up"},
            {"top_p", (double)params->top_p, params->top_p > 0 && params->top_p <= 1,
                    "above 0, up to 1"},
            {"min_p", (double)params->min_p, params->min_p >= 0 && params->min_p <= 1, "0 to 1"},
            {"repeat_penalty", (double)params->repeat_penalty,
                    isfinite(params->repeat_penalty) && params->repeat_penalty > 0, "above 0"},
            {"repeat_last_n", params->repeat_last_n,
                    params->repeat_last_n >= 0 && params->repeat_last_n <= 1000000, "0 to 1000000"},
    };
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (!checks[i].good) {
            return kiln_err_set(err, KILN_STATUS_USAGE, "sampling: %s is %g; allowed is %s",
                    checks[i].name, checks[i].value, checks[i].allowed);
        }
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_sampler_create(struct kiln_sampler **sampler,
        const struct kiln_sampler_params *params, struct kiln_err *err) {
    *sampler = NULL;
    KILN_TRY(check_params(params, err));
    struct kiln_sampler *made = kiln_calloc(1, sizeof(*made));
    if (made) {
        made->recent = kiln_calloc((size_t)params->repeat_last_n, sizeof(*made->recent));
    }
    if (!made || !made->recent) {
        kiln_sampler_destroy(made);
        return kiln_err_nomem(err, "the sampler");
    }
    made->params = *params;
    uint64_t seed = params->seed;
    for (int i = 0; i < 4; i++) {
        made->state[i] = splitmix(&seed);
    }
    *sampler = made;
    return KILN_STATUS_OK;
}

void kiln_sampler_destroy(struct kiln_sampler *sampler) {
    if (sampler) {
        kiln_free(sampler->recent);
        kiln_free(sampler->heap);
        kiln_free(sampler->kept);
        kiln_free(sampler);
    }
}

void kiln_sampler_accept(struct kiln_sampler *sampler, int32_t id) {
    size_t cap = (size_t)sampler->params.repeat_last_n;
    if (cap > 0) {
        sampler->recent[sampler->next_recent] = id;
        sampler->next_recent = (sampler->next_recent + 1) % cap;
        sampler->n_recent += sampler->n_recent < cap;
    }
}

// ---- candidates

// Each from the logit itself, so that an id that came twice is not penalized twice.
static void penalize(const struct kiln_sampler *sampler, const float *logits, int32_t n_vocab) {
    float penalty = sampler->params.repeat_penalty;
    if (penalty == 1) {
        return;
    }
    for (size_t i = 0; i < sampler->n_recent; i++) {
        int32_t id = sampler->recent[i];
        if (id >= 0 && id < n_vocab) {
            float logit = logits[id];
            sampler->heap[id].logit = logit > 0 ? logit / penalty : logit * penalty;
        }
    }
}

static int better(const struct candidate *a, const struct candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void sift_down(struct candidate *heap, size_t len, size_t at) {
    struct candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < len; at = child) {
        if (child + 1 < len && better(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!better(&heap[child], &moved)) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

// All logits with penalties, without what can never be drawn; *len of them, in order of id, and the
// best.
static enum kiln_status gather(struct kiln_sampler *sampler, const float *logits, int32_t n_vocab,
        size_t *len, struct candidate *best, struct kiln_err *err) {
    if (n_vocab <= 0) {
        return kiln_err_set(err, KILN_STATUS_CHECK, "there are no logits to sample from");
    }
    if (kiln_grow(&sampler->heap, &sampler->heap_cap, (size_t)n_vocab, sizeof(*sampler->heap)) !=
            0) {
        return kiln_err_nomem(err, "sampling");
    }
    struct candidate *heap = sampler->heap;
    for (int32_t id = 0; id < n_vocab; id++) {
        heap[id] = (struct candidate){.logit = logits[id], .id = id};
    }
    penalize(sampler, logits, n_vocab);
    *best = (struct candidate){.logit = -INFINITY, .id = -1};
    *len = 0;
    for (int32_t id = 0; id < n_vocab; id++) {
        if (heap[id].logit > -INFINITY) { // false for what is not a number
            *best = better(&heap[id], best) ? heap[id] : *best;
            heap[(*len)++] = heap[id];
        }
    }
    return isfinite(best->logit)
                   ? KILN_STATUS_OK
                   : kiln_err_set(err, KILN_STATUS_CHECK,
                             "the logits are not numbers: of %d %s, so no token can be chosen; a "
                             "kernel or the model's weights must be wrong",
                             (int)n_vocab, best->id < 0 ? "none is finite" : "one is infinite");
}

static enum kiln_status keep(
        struct kiln_sampler *sampler, const struct candidate *candidate, struct kiln_err *err) {
    if (kiln_grow(&sampler->kept, &sampler->kept_cap, sampler->kept_len + 1,
                sizeof(*sampler->kept)) != 0) {
        return kiln_err_nomem(err, "sampling");
    }
    sampler->kept[sampler->kept_len++] = *candidate;
    return KILN_STATUS_OK;
}

// Takes candidates off the heap, best first, until `most` are kept or their weights reach `target`.
static enum kiln_status keep_best(struct kiln_sampler *sampler, size_t len, float best, size_t most,
        double target, struct kiln_err *err) {
    struct candidate *heap = sampler->heap;
    for (size_t i = len / 2; i-- > 0;) {
        sift_down(heap, len, i);
    }
    double reached = 0;
    while (sampler->kept_len < most && (sampler->kept_len == 0 || reached < target)) {
        struct candidate top = heap[0];
        top.weight = exp_of((double)top.logit - (double)best);
        reached += top.weight;
        KILN_TRY(keep(sampler, &top, err));
        heap[0] = heap[--len];
        sift_down(heap, len, 0);
    }
    return KILN_STATUS_OK;
}

static double sum_of_weights(const struct candidate *list, size_t len) {
    double sum = 0;
    for (size_t i = 0; i < len; i++) {
        sum += list[i].weight;
    }
    return sum;
}

// Top-k and top-p. Without either nothing needs an order.
static enum kiln_status filter_top(
        struct kiln_sampler *sampler, size_t len, float best, struct kiln_err *err) {
    double top_p = (double)sampler->params.top_p;
    int top_k = sampler->params.top_k;
    sampler->kept_len = 0;
    if (top_k > 0 && (size_t)top_k < len) {
        KILN_TRY(keep_best(sampler, len, best, (size_t)top_k, (double)INFINITY, err));
        double target = top_p * sum_of_weights(sampler->kept, sampler->kept_len);
        double reached = sampler->kept[0].weight;
        size_t n = 1;
        while (n < sampler->kept_len && (top_p >= 1 || reached < target)) {
            reached += sampler->kept[n++].weight;
        }
        sampler->kept_len = n;
        return KILN_STATUS_OK;
    }
    for (size_t i = 0; i < len; i++) {
        sampler->heap[i].weight = exp_of((double)sampler->heap[i].logit - (double)best);
    }
    if (top_p < 1) {
        double target = top_p * sum_of_weights(sampler->heap, len);
        return keep_best(sampler, len, best, len, target, err);
    }
    for (size_t i = 0; i < len; i++) {
        KILN_TRY(keep(sampler, &sampler->heap[i], err));
    }
    return KILN_STATUS_OK;
}

static void filter_min_p(struct kiln_sampler *sampler) {
    size_t n = 0;
    for (size_t i = 0; i < sampler->kept_len; i++) {
        if (sampler->kept[i].weight >= (double)sampler->params.min_p) { // the best has weight 1
            sampler->kept[n++] = sampler->kept[i];
        }
    }
    sampler->kept_len = n;
}

static int32_t draw(struct kiln_sampler *sampler, float best) {
    struct candidate *kept = sampler->kept;
    double temp = (double)sampler->params.temp;
    for (size_t i = 0; temp != 1 && i < sampler->kept_len; i++) {
        kept[i].weight = exp_of(((double)kept[i].logit - (double)best) / temp);
    }
    double sum = sum_of_weights(kept, sampler->kept_len);
    double at = (double)(next_random(sampler->state) >> 11) * 0x1p-53 * sum; // in [0, sum)
    int32_t id = kept[0].id;
    for (size_t i = 0; i < sampler->kept_len; i++) {
        if (kept[i].weight > 0) { // rounding may leave `at` past the last one: that one it is
            id = kept[i].id;
        }
        if (at < kept[i].weight) {
            break;
        }
        at -= kept[i].weight;
    }
    return id;
}

enum kiln_status kiln_sampler_sample(struct kiln_sampler *sampler, const float *logits,
        int32_t n_vocab, int32_t *id, struct kiln_err *err) {
    size_t len = 0;
    struct candidate best = {0};
    KILN_TRY(gather(sampler, logits, n_vocab, &len, &best, err));
    if (sampler->params.greedy || sampler->params.temp == 0) {
        *id = best.id;
        return KILN_STATUS_OK;
    }
    KILN_TRY(filter_top(sampler, len, best.logit, err));
    filter_min_p(sampler);
    *id = draw(sampler, best.logit);
    return KILN_STATUS_OK;
}

int kiln_sampler_is_plain(const struct kiln_sampler *sampler) {
    const struct kiln_sampler_params *params = &sampler->params;
    return (params->greedy || params->temp == 0) && params->repeat_penalty == 1;
}
