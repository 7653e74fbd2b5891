/* verify/cases.h: the generators that op cards name (cases).  Each makes its ops' cases, one after another. */
#ifndef KVANT_VERIFY_CASES_H
#define KVANT_VERIFY_CASES_H

#include "verify/vcase.h"

void cases_formula(vcase *c);         /* of cards that name none */
void cases_elementwise(vcase *c);
void cases_norms(vcase *c);
void cases_rows(vcase *c);
void cases_slots(vcase *c);
void cases_moe(vcase *c);
void cases_weights(vcase *c);
void cases_experts(vcase *c);
void cases_cache(vcase *c);
void cases_attn(vcase *c);
void cases_score(vcase *c);
void cases_conv(vcase *c);
void cases_gdn(vcase *c);
void cases_ssm(vcase *c);

#endif
