/* text/jinja/jinja_vm.h: what jinja_vm.c, jinja_state.c and jinja_call.c share: the stack, scopes, captured output,
 * and instructions that call. */
#ifndef KVANT_TEXT_JINJA_VM_H
#define KVANT_TEXT_JINJA_VM_H

#include "text/jinja/jinja_run.h"

int jpush(jinja_run *r, jval v);
jval jpop(jinja_run *r);
int jscope_push(jinja_run *r, jscope *parent); /* becomes r->scope */
int jscope_set(jinja_run *r, jscope *s, int name, jval v);
int jcapture_push(jinja_run *r);
int jcapture_pop(jinja_run *r); /* its text on the stack */

int jop_filter(jinja_run *r, const jins *in);
int jop_test(jinja_run *r, const jins *in);
int jop_call(jinja_run *r, const jins *in);
int jop_macro(jinja_run *r, const jins *in);
int jop_bound(jinja_run *r, const jins *in);
int jop_return(jinja_run *r, const jins *in);

#endif
