// The template of a document is its text without the scalars. Successive documents mostly
// have the same template, and one that does is indexed by comparing text.

#ifndef PERIGEE_TEMPLATE_H
#define PERIGEE_TEMPLATE_H

#include "walk.h"

enum {
	TEMPLATE_AFTER = 4 // successive documents of one shape make a template
};

// doc_template_learn makes the template from the document that was indexed last.
void doc_template_learn(doc *d);

// doc_template_match indexes a text that has the template of the preceding document, whose nodes
// it reuses. It returns 0 for any other text. Without `special` the text has neither
// backslashes nor control characters.
int doc_template_match(doc *d, const char *text, uint32_t len, int special);

#endif
