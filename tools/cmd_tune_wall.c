// cmd_tune_wall: the winners of a sweep in a whole model.
#include "cmd_tune.h"

#include "base/file.h"
#include "base/mem.h"
#include "common.h"
#include "lab/ab.h"
#include "lab/greedy.h"
#include "twin_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PROMPT = 48, // tokens of the greedy comparison, and as many are continued
    PREFILL = 512,
    DECODE = 64,
};

static enum kiln_status compare_tokens(
        const struct kiln_twin *twin, int *same, struct kiln_err *err) {
    int32_t ids[PROMPT];
    struct kiln_greedy greedy;
    struct kiln_twin pair = *twin;
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = (int32_t)(1 + (i * 37) % (twin->model->params.n_vocab - 1));
    }
    enum kiln_status status = kiln_greedy_compare(&pair, ids, PROMPT, PROMPT, &greedy, err);
    if (status != KILN_STATUS_OK) {
        kiln_greedy_finish(&greedy);
        return status;
    }
    // At a fork the gap must be within what the logits differ by anyway: no more than a tie decided
    // the other way.
    *same = greedy.fork < 0 || greedy.at_fork.top[0].gap <= 2 * greedy.at_fork.noise;
    fprintf(stderr, "kiln: greedy tokens: %s\n",
            greedy.fork < 0 ? "identical"
            : *same         ? "they fork where two logits are as good as equal"
                            : "they fork where the base is sure");
    kiln_greedy_finish(&greedy);
    return KILN_STATUS_OK;
}

static enum kiln_status compare_wall(struct kiln_twin *twin, const struct kiln_tune *tune,
        enum kiln_verdict *verdict, struct kiln_err *err) {
    int decode = strstr(tune->params->slot, ".decode") != NULL;
    struct kiln_ab ab;
    const struct kiln_ab_params params = {
            .load = {.n_prompt = decode ? 0 : PREFILL, .n_gen = decode ? DECODE : 0},
            .rounds = 12,
            .bar = 0,
            .alpha = 0.01,
            .stop = kiln_interrupted};
    enum kiln_status status = kiln_ab_run(twin, &params, &ab, err);
    if (status == KILN_STATUS_OK) {
        *verdict = ab.effect.verdict;
        fprintf(stderr, "kiln: the wall of %s: %+.2f %% (%+.2f to %+.2f), %s\n",
                decode ? "a decode" : "a prefill", ab.effect.median, ab.effect.interval.low,
                ab.effect.interval.high, kiln_verdict_name(ab.effect.verdict));
    }
    kiln_ab_finish(&ab);
    return status;
}

static enum kiln_status compare(const struct kiln_common *common, const struct kiln_tune *tune,
        const char *const files[KILN_SIDES], enum kiln_verdict *verdict, struct kiln_err *err) {
    struct kiln_twin_run run;
    struct kiln_common own = *common;
    int same = 0;
    own.device = tune->id;
    own.ctx = own.ctx > 0 ? own.ctx : 1024;
    KILN_TRY(kiln_twin_run_open(&run, &own, files, err));
    enum kiln_status status = compare_tokens(&run.twin, &same, err);
    if (status == KILN_STATUS_OK) {
        status = compare_wall(&run.twin, tune, verdict, err);
    }
    *verdict = same ? *verdict : KILN_VERDICT_REVERT;
    kiln_twin_run_close(&run);
    return status;
}

enum kiln_status kiln_tune_check_on_wall(const struct kiln_common *common,
        const struct kiln_tune *tune, enum kiln_verdict *verdict, struct kiln_err *err) {
    struct kiln_buf text = {0};
    size_t sections = 0;
    char dir[] = "/tmp/kiln-tune-XXXXXX";
    *verdict = KILN_VERDICT_LAND;
    enum kiln_status status = kiln_tune_ini(tune, "", &text, &sections, err);
    if (status != KILN_STATUS_OK || sections == 0) {
        kiln_buf_finish(&text);
        return status;
    }
    if (!mkdtemp(dir)) {
        kiln_buf_finish(&text);
        return kiln_err_set(err, KILN_STATUS_FILE, "no temporary folder in /tmp");
    }
    char *files[2] = {kiln_asprintf("%s/base.ini", dir), kiln_asprintf("%s/tuned.ini", dir)};
    status = files[0] && files[1] ? kiln_file_write(files[0], "", 0, err)
                                  : kiln_err_nomem(err, "a path");
    if (status == KILN_STATUS_OK) {
        status = kiln_file_write(files[1], text.data, text.len, err);
    }
    if (status == KILN_STATUS_OK) {
        const char *const sides[KILN_SIDES] = {files[0], files[1], NULL};
        status = compare(common, tune, sides, verdict, err);
    }
    for (int i = 0; i < 2; i++) {
        if (files[i]) {
            (void)unlink(files[i]);
        }
        kiln_free(files[i]);
    }
    (void)rmdir(dir);
    kiln_buf_finish(&text);
    return status;
}
