// tune_final: what the rounds of a final say.
#include "lab/tune.h"

#include "base/mem.h"

#include <math.h>

static const double alpha = 0.01;
// Two finalists whose medians are nearer than this, in percent, are as fast as each other.
static const double nearest_pct = 0.5;

struct final_view {
    struct kiln_tune_problem *problem;
    const double *seconds;
    size_t rounds, columns;
    double *change, *control, *own; // (rounds)
};

static double at(const struct final_view *view, size_t round, size_t column) {
    return view->seconds[round * view->columns + column];
}

static enum kiln_status judge_one(
        const struct final_view *view, size_t index, double bar, struct kiln_err *err) {
    struct kiln_tune_finalist *finalist = &view->problem->finalists[index];
    for (size_t r = 0; r < view->rounds; r++) {
        double first = at(view, r, 0), again = at(view, r, view->columns - 1);
        double own = at(view, r, index);
        view->own[r] = own;
        view->change[r] = 100 * (0.5 * (first + again) / own - 1);
        view->control[r] = 100 * (first / again - 1);
    }
    finalist->seconds = kiln_median(view->own, view->rounds);
    if (index == 0) {
        return KILN_STATUS_OK;
    }
    return kiln_judge(
            view->change, view->control, view->rounds, bar, alpha, 1, &finalist->effect, err);
}

// Whether a finalist may win: without a base any may.
static int may_win(const struct kiln_tune_problem *problem, size_t index, int base) {
    return !base || problem->finalists[index].effect.verdict == KILN_VERDICT_LAND;
}

// Of those that cannot be told from the fastest the one that comes first in the space wins, so that
// the same sweep ends the same way.
static void pick(struct kiln_tune_problem *problem, int base) {
    size_t best = SIZE_MAX;
    for (size_t i = base ? 1 : 0; i < problem->n_finalists; i++) {
        if (may_win(problem, i, base) &&
                (best == SIZE_MAX ||
                        problem->finalists[i].seconds < problem->finalists[best].seconds)) {
            best = i;
        }
    }
    problem->kept = best == SIZE_MAX;
    size_t fastest = best == SIZE_MAX ? 0 : best;
    double reference = problem->finalists[fastest].seconds;
    problem->winner = problem->finalists[fastest].entry;
    for (size_t i = 0; i < problem->n_finalists; i++) {
        struct kiln_tune_finalist *finalist = &problem->finalists[i];
        double apart = 100 * fabs(finalist->seconds / reference - 1);
        const struct kiln_effect *e = &finalist->effect;
        finalist->tied = i != fastest &&
                         (problem->kept ? e->verdict == KILN_VERDICT_NEUTRAL && i > 0
                                        : apart <= fmax(nearest_pct, e->noise) &&
                                                  may_win(problem, i, base) && (i > 0 || !base));
        if (finalist->tied && !problem->kept &&
                finalist->entry->candidate < problem->winner->candidate) {
            problem->winner = finalist->entry;
        }
    }
}

enum kiln_status kiln_tune_judge(struct kiln_tune_problem *problem, const double *seconds,
        size_t rounds, int base, double bar, struct kiln_err *err) {
    struct final_view view = {.problem = problem,
            .seconds = seconds,
            .rounds = rounds,
            .columns = problem->n_finalists + 1};
    double *memory = kiln_calloc(3 * rounds + 1, sizeof(*memory));
    if (!memory) {
        return kiln_err_nomem(err, "a final");
    }
    view.change = memory;
    view.control = memory + rounds;
    view.own = memory + 2 * rounds;
    enum kiln_status status = KILN_STATUS_OK;
    for (size_t i = 0; i < problem->n_finalists && status == KILN_STATUS_OK; i++) {
        status = judge_one(&view, i, bar, err);
    }
    kiln_free(memory);
    if (status == KILN_STATUS_OK) {
        pick(problem, base);
    }
    return status;
}
