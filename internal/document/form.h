// The form of a document: all its text but the scalars. Documents one after the other
// mostly have the same.

#ifndef PERIGEE_FORM_H
#define PERIGEE_FORM_H

#include "walk.h"

enum { FORM_AFTER = 4 }; // documents of one shape, from which on their form is known

// form_learn takes the form of the document that was indexed last.
void form_learn(doc *d);

// form_follow indexes a text that has the form of the document before, whose nodes
// are still there. It returns 0 when it has another, or is none. Where nobody need be
// careful, there are neither backslashes nor control characters in the text.
int form_follow(doc *d, const char *text, uint32_t len, int careful);

void form_free(doc *d);

#endif
