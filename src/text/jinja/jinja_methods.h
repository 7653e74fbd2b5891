/* text/jinja/jinja_methods.h: work on texts that methods and filters share. */
#ifndef KVANT_TEXT_JINJA_METHODS_H
#define KVANT_TEXT_JINJA_METHODS_H

#include "text/jinja/jinja_run.h"

/* TITLE: words are runs of letters (str.title); WORDS: they begin at white space and -({[< (the filter). */
enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITALIZE, JCASE_WORDS, JCASE_FOLD };

int jargs_str(jinja_run *r, const jargs *a, int i, const char *name, const jstr **out);
int jstr_recase(jinja_run *r, const jstr *s, enum jcase how, jval *out);
int jstr_escape(jinja_run *r, const jstr *s, jval *out); /* markup, for HTML */
int jstr_mark(jinja_run *r, const jstr *s, jval *out);
/* most < 0: all. */
int jstr_replace(jinja_run *r, const jstr *s, const jstr *old, const jstr *by, int64_t most, jval *out);

#endif
