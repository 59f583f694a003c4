// prompts: a set of prompts from a file.
//
// FILE.jsonl: a JSON object a line, with "prompt" (text) or "prompt_ids" (ids); other members are
// ignored. Any other file is text: a line of three dashes alone separates prompts; without such a
// line every line that is not empty is a prompt.
#ifndef KILN_LAB_PROMPTS_H
#define KILN_LAB_PROMPTS_H

#include "model/tokenizer.h"

struct kiln_prompts {
    struct kiln_ids *items; // each with at least one id
    size_t count, cap;
};

// tokenizer: NULL for a model that takes ids only; text is KILN_STATUS_FILE then. Errors name file
// and line. A file without prompts is KILN_STATUS_FILE. The caller ends *prompts with
// kiln_prompts_finish, also after a failure.
KILN_MUST_CHECK enum kiln_status kiln_prompts_read(struct kiln_prompts *prompts, const char *path,
        const struct kiln_tokenizer *tokenizer, struct kiln_err *err);
void kiln_prompts_finish(struct kiln_prompts *prompts);

#endif
