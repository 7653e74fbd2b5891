/* make/convert/fields/hf_fields.h: every field of config.json and generation_config.json is read, known to change
 * nothing, or named in an error or warning.
 *
 * hf_classes.def is the inventory (made by tools/gen_hf_fields.py), hf_decisions.def says what is done with each. */
#ifndef KVANT_MAKE_HF_FIELDS_H
#define KVANT_MAKE_HF_FIELDS_H

#include "make/convert/hf_config.h"

/* A class of Transformers' configurations; lists are JSON. */
typedef struct hf_class {
    const char *name, *model_type, *architectures, *text;
    const char *fields;  /* {"name": default} */
    const char *more;    /* ["name"]: no fields, but looked for */
    const char *renamed; /* {"other name": "field"} */
} hf_class;

typedef struct hf_decision {
    enum { HF_READ, HF_ONLY, HF_NONE, HF_TOLD } kind;
    const char *classes, *fields, *text;
} hf_decision;

const hf_class *hf_class_at(int i); /* NULL at the end */
const hf_class *hf_class_named(const char *name);
/* named: 1, the row names the class; 0, it is one of "*". */
const hf_decision *hf_decision_of(const char *cls, const char *field, int *named);
/* 1: a field of the class or of all, another name of one, a name that its code looks for, or one of a row for the
 * class. */
int hf_class_has(const hf_class *cls, const char *field);
/* Fields and names of a class without a decision, as words in buf; their number. */
int hf_class_undecided(const hf_class *cls, char *buf, size_t cap);

/* c->cls and c->text_cls: by the architecture and by model_type. */
int hf_fields_classes(hf_config *c, const char *architecture, kvant_diag *diag);
/* Errors name the field, the value found and those wanted; warnings go to the log. */
int hf_fields_check(const hf_config *c, kvant_diag *diag);
/* One object of a file against a class that has no defaults worth a refusal (rope_parameters,
 * generation_config.json). */
int hf_fields_check_object(gjson object, const char *cls, const char *file, kvant_diag *diag);

#endif
