#include "document.h"

const doc_api *doc_functions(void) {
#define ASSIGN(result, name, parameters) .name = doc_##name,
	static const doc_api api = {DOC_FUNCTIONS(ASSIGN)};
	return &api;
}
