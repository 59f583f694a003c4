// generate: prefill, then sample, show and feed one token after another.
#include "engine/generate.h"

#include "base/clock.h"
#include "base/ranges.h"

// Feeds the id: then the logits behind it are there, or, where nobody else needs them, *pick is
// what the sampler would take of them.
static enum kiln_status feed(struct kiln_engine *engine, const struct kiln_sampler *sampler,
        int32_t id, int more, float *logits, int32_t *pick, struct kiln_err *err) {
    *pick = -1;
    if (kiln_engine_picks(engine) && kiln_sampler_is_plain(sampler)) {
        KILN_TRY(kiln_engine_pick(engine, id, more, pick, err));
        if (*pick >= 0) {
            return KILN_STATUS_OK;
        }
        kiln_engine_truncate(engine, kiln_engine_n_past(engine) - 1); // the sampler is to say why
    }
    return kiln_engine_eval(engine, &id, 1, logits, err);
}

static enum kiln_status loop(struct kiln_session *session, struct kiln_sampler *sampler,
        float *logits, const struct kiln_generate_params *params, struct kiln_generated *out,
        struct kiln_err *err) {
    struct kiln_engine *engine = session->engine;
    const struct kiln_tokenizer *tokenizer = session->model->tokenizer;
    double start = kiln_clock_seconds();
    int32_t pick = -1;
    out->end = KILN_END_LENGTH;
    for (int64_t i = 0; i < params->n; i++) {
        int32_t id = pick;
        if (id < 0) {
            KILN_TRY(
                    kiln_sampler_sample(sampler, logits, session->model->params.n_vocab, &id, err));
        }
        if (!params->ignore_end && tokenizer && kiln_tokenizer_is_end(tokenizer, id)) {
            out->end = KILN_END_TOKEN;
            return KILN_STATUS_OK;
        }
        KILN_TRY(kiln_ids_push(&out->ids, id, err));
        kiln_sampler_accept(sampler, id);
        if (params->token) {
            KILN_TRY(params->token(params->arg, id, err));
        }
        if (i + 1 == params->n) {
            break;
        }
        if (kiln_engine_n_past(engine) == kiln_engine_ctx(engine)) {
            out->end = KILN_END_CONTEXT;
            return KILN_STATUS_OK;
        }
        KILN_TRY(feed(engine, sampler, id, i + 2 < params->n, logits, &pick, err));
        out->decode_steps++;
        out->decode_seconds = kiln_clock_seconds() - start;
    }
    return KILN_STATUS_OK;
}

enum kiln_status kiln_generate(struct kiln_session *session, struct kiln_sampler *sampler,
        const int32_t *prompt, int64_t n_prompt, const struct kiln_generate_params *params,
        struct kiln_generated *out, struct kiln_err *err) {
    *out = (struct kiln_generated){0};
    void *data = NULL;
    KILN_TRY(kiln_dev_host_alloc(
            session->dev, (uint64_t)session->model->params.n_vocab * sizeof(float), &data, err));
    float *logits = data;
    kiln_range_push(kiln_range_name("run"), n_prompt);
    double start = kiln_clock_seconds();
    enum kiln_status status = kiln_engine_eval(session->engine, prompt, n_prompt, logits, err);
    out->prompt_seconds = kiln_clock_seconds() - start;
    for (int64_t i = 0; i < n_prompt; i++) {
        kiln_sampler_accept(sampler, prompt[i]);
    }
    if (status == KILN_STATUS_OK) {
        status = loop(session, sampler, logits, params, out, err);
    }
    kiln_range_pop();
    kiln_dev_host_free(session->dev, logits);
    return status;
}
