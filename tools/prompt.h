// prompt: where a command's prompt comes from: text, a file of text, or a file of token ids.
#ifndef KILN_TOOLS_PROMPT_H
#define KILN_TOOLS_PROMPT_H

#include "base/status.h"
#include "model/tokenizer.h"

struct kiln_prompt_source {
    const char *text, *file, *ids_file; // at most one
    int no_special;                     // control tokens spelled out in the text are text
};

#define KILN_PROMPT_OPTIONS(s) \
    {"-p", "--prompt", KILN_OPT_STRING, &(s)->text, "TEXT", "the prompt", 0, 0}, \
            {"-f", "--file", KILN_OPT_STRING, &(s)->file, "FILE", \
                    "the prompt is in a file; - is standard input", 0, 0}, \
            {"--prompt-ids", NULL, KILN_OPT_STRING, &(s)->ids_file, "FILE", \
                    "the prompt as token ids, separated by blanks, commas or lines", 0, 0}, \
    { \
        "--no-special", NULL, KILN_OPT_FLAG, &(s)->no_special, NULL, \
                "control tokens spelled out in the prompt are text", 0, 0 \
    }

int kiln_prompt_is_interactive(const struct kiln_prompt_source *source);
// More than one source is KILN_STATUS_USAGE.
KILN_MUST_CHECK enum kiln_status kiln_prompt_check(
        const struct kiln_prompt_source *source, struct kiln_err *err);
// Appends the prompt's ids. An empty prompt becomes the model's begin-of-text; a model without one,
// or text for a model without a tokenizer (NULL), is KILN_STATUS_USAGE. `model` is its path, for
// messages.
KILN_MUST_CHECK enum kiln_status kiln_prompt_read(const struct kiln_prompt_source *source,
        const struct kiln_tokenizer *tokenizer, const char *model, struct kiln_ids *ids,
        struct kiln_err *err);

#endif
