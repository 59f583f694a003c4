// ledger_model: which model a result is of, and which models a lever was judged on.
#include "lab/ledger_impl.h"

#include <jansson.h>
#include <string.h>

const char *kiln_result_model(const struct json_t *row) {
    const json_t *result = json_object_get(row, "result");
    const json_t *first =
            json_array_get(json_is_array(result) ? result : json_object_get(result, "rows"), 0);
    // A wall says the file; the others' "model" is an architecture, which many models have.
    const char *file = strcmp(kiln_json_string(row, "kind", ""), "wall") == 0
                               ? kiln_json_string(result, "model", NULL)
                               : NULL;
    file = kiln_json_string(result, "model_file", kiln_json_string(first, "model_file", file));
    const char *slash = file ? strrchr(file, '/') : NULL;
    return slash ? slash + 1 : file;
}

int kiln_result_may_be_of(const struct json_t *row, const struct json_t *models) {
    const char *model = kiln_result_model(row);
    return !model || json_object_size(models) == 0 || json_object_get(models, model);
}

enum kiln_status kiln_lever_models(struct kiln_ledger *ledger, const struct json_t *lever,
        struct json_t **models, struct kiln_err *err) {
    const struct kiln_ledger_filter evidence = {
            .of = kiln_json_string(lever, "name", ""), .with_document = 1};
    json_t *rows;
    size_t i;
    const json_t *row;
    *models = NULL;
    KILN_TRY(kiln_ledger_results(ledger, &evidence, &rows, err));
    int failed = !(*models = json_object());
    json_array_foreach(rows, i, row) {
        const char *model = kiln_result_model(row);
        failed |= model && !failed && json_object_set_new(*models, model, json_true()) != 0;
    }
    json_decref(rows);
    if (failed) {
        json_decref(*models);
        *models = NULL;
        return kiln_err_nomem(err, "the levers");
    }
    return KILN_STATUS_OK;
}
