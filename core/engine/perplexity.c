// perplexity: chunks, scores, mean and standard error.
#include "engine/perplexity.h"

#include "base/mem.h"
#include "base/ranges.h"

#include <math.h>
#include <string.h>

struct scores {
    struct kiln_session *session;
    const int32_t *ids; // of the chunk
    int64_t ctx;
    double *nll; // of this slice's rows
    double sum, sum_squares;
    int64_t count;
};

struct slice {
    const float *logits;
    const int32_t *next;
    double *nll;
    int64_t n_vocab;
};

// Row `index`: -log softmax(logits)[next].
static void score_row(void *arg, uint32_t index, uint32_t worker) {
    (void)worker;
    const struct slice *slice = arg;
    const float *row = slice->logits + (int64_t)index * slice->n_vocab;
    float max = row[0];
    for (int64_t i = 1; i < slice->n_vocab; i++) {
        max = row[i] > max ? row[i] : max;
    }
    double sum = 0;
    for (int64_t i = 0; i < slice->n_vocab; i++) {
        sum += (double)expf(row[i] - max);
    }
    slice->nll[index] = log(sum) + (double)max - (double)row[slice->next[index]];
}

static enum kiln_status take(
        void *arg, int64_t at, int64_t n, const float *logits, struct kiln_err *err) {
    (void)err;
    struct scores *scores = arg;
    if (at + n > scores->ctx - 1) { // nothing follows the chunk's last id
        n = scores->ctx - 1 - at;
    }
    struct slice slice = {.logits = logits,
            .next = scores->ids + at + 1,
            .nll = scores->nll,
            .n_vocab = scores->session->model->params.n_vocab};
    kiln_pool_run(scores->session->dev->pool, score_row, &slice, (uint32_t)n);
    for (int64_t i = 0; i < n; i++) { // summed in order: the same value for any number of threads
        scores->sum += scores->nll[i];
        scores->sum_squares += scores->nll[i] * scores->nll[i];
    }
    scores->count += n;
    return KILN_STATUS_OK;
}

static enum kiln_status run_chunk(
        struct scores *scores, const int32_t *ids, int32_t *chunk, struct kiln_err *err) {
    const struct kiln_tokenizer *tokenizer = scores->session->model->tokenizer;
    memcpy(chunk, ids, (size_t)scores->ctx * sizeof(*chunk));
    if (tokenizer && kiln_tokenizer_adds_bos(tokenizer)) {
        chunk[0] = kiln_tokenizer_bos(tokenizer);
    }
    scores->ids = chunk;
    kiln_engine_truncate(scores->session->engine, 0);
    return kiln_engine_eval_all(
            scores->session->engine, chunk, scores->ctx, scores->ctx / 2, take, scores, err);
}

static void summarize(const struct scores *scores, struct kiln_perplexity *result) {
    double n = (double)scores->count;
    double mean = scores->sum / n;
    double variance = scores->sum_squares / n - mean * mean;
    result->ppl = exp(mean);
    result->error = n > 1 && variance > 0 ? sqrt(variance / (n - 1)) * result->ppl : 0;
    result->scored = scores->count;
}

enum kiln_status kiln_perplexity(struct kiln_session *session, const int32_t *ids, int64_t n_ids,
        int64_t ctx, int64_t chunks, kiln_perplexity_fn progress, void *arg,
        struct kiln_perplexity *result, struct kiln_err *err) {
    int64_t have = n_ids / ctx;
    if (have < 1) {
        return kiln_err_set(err, KILN_STATUS_USAGE,
                "the text has %lld tokens, one chunk needs %lld; a smaller -c takes a shorter text",
                (long long)n_ids, (long long)ctx);
    }
    int64_t n_chunks = chunks > 0 && chunks < have ? chunks : have;
    struct scores scores = {.session = session, .ctx = ctx};
    int32_t *chunk = kiln_calloc((size_t)ctx, sizeof(*chunk));
    scores.nll = kiln_calloc((size_t)ctx, sizeof(*scores.nll));
    enum kiln_status status = chunk && scores.nll ? KILN_STATUS_OK : kiln_err_nomem(err, "a chunk");
    kiln_range_push(kiln_range_name("run"), n_chunks);
    for (int64_t i = 0; status == KILN_STATUS_OK && i < n_chunks; i++) {
        status = run_chunk(&scores, ids + i * ctx, chunk, err);
        if (status == KILN_STATUS_OK) {
            summarize(&scores, result);
            result->chunks = i + 1;
            if (progress) {
                progress(arg, i + 1, n_chunks, result->ppl);
            }
        }
    }
    kiln_range_pop();
    kiln_free(chunk);
    kiln_free(scores.nll);
    return status;
}
