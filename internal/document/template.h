// A template is the text of a document without the scalars. Successive documents mostly have the
// same template; such a document is indexed by comparing text.

#ifndef PERIGEE_TEMPLATE_H
#define PERIGEE_TEMPLATE_H

#include "walk.h"

enum {
	TEMPLATE_AFTER = 4 // successive documents of one shape after which a template is made
};

// doc_template_learn makes a template from the document indexed last.
void doc_template_learn(doc *d);

// doc_template_match indexes a text that has the template of the preceding document, and reuses the
// document's nodes. It returns 0 for any other text. Without `special` the text has neither
// backslashes nor control characters.
int doc_template_match(doc *d, const char *text, uint32_t len, int special);

#endif
