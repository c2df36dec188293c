// Checks the text of strings.

#ifndef PERIGEE_TEXT_H
#define PERIGEE_TEXT_H

#include <stddef.h>

// offset of the first byte that is not UTF-8, or len
size_t doc_utf8_end(const char *s, size_t len);
// length of the escape at s, 0 if it is invalid
size_t doc_escape_len(const char *s, size_t len);

#endif
