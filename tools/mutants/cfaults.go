package main

import (
	"regexp"
	"strconv"
)

// cFaults lists the faults that a C file can have. It reads tokens, not syntax: what does
// not compile is skipped when it is tried.
func cFaults(path string, text []byte) []fault {
	code := blankComments(text)
	var found []fault
	add := func(start, end int, kind, after string) {
		found = append(found, newFault(path, text, start, end, kind, after))
	}
	bounds := map[int]bool{}
	for _, m := range cBound.FindAllSubmatchIndex(code, -1) {
		a, b := string(code[m[2]:m[3]]), string(code[m[6]:m[7]])
		first, second := string(code[m[8]:m[9]]), string(code[m[10]:m[11]])
		bounds[m[4]] = a == first && b == second || a == second && b == first
	}
	for _, m := range cOperator.FindAllSubmatchIndex(code, -1) {
		if bounds[m[2]] {
			continue
		}
		swap := operators[string(code[m[2]:m[3]])]
		add(m[2], m[3], swap.kind, swap.after)
	}
	hints := map[int]bool{} // where they end
	for _, m := range cHint.FindAllSubmatchIndex(code, -1) {
		hints[closingParenthesis(code, m[2])-1] = true
	}
	for _, m := range cNumber.FindAllSubmatchIndex(code, -1) {
		if value, err := strconv.ParseInt(string(code[m[2]:m[3]]), 10, 32); err == nil && !hints[m[3]] {
			add(m[2], m[3], kindOffByOne, strconv.FormatInt(value+1, 10))
		}
	}
	for _, m := range cIf.FindAllSubmatchIndex(code, -1) {
		if end := closingParenthesis(code, m[2]); end > 0 {
			add(m[2], end, kindNegate, "(!"+string(text[m[2]:end])+")")
		}
	}
	calls := cCall.FindAllSubmatchIndex(code, -1)
	for i, m := range calls {
		add(m[2], m[3], kindStatement, ";")
		if i+1 < len(calls) && onlySpace(code[m[3]:calls[i+1][2]]) {
			next := calls[i+1]
			add(m[2], next[3], kindSwap, string(text[next[2]:next[3]])+string(text[m[3]:next[2]])+string(text[m[2]:m[3]]))
			found[len(found)-1].commutes = commute(string(text[m[2]:m[3]]), string(text[next[2]:next[3]]))
		}
	}
	return found
}

var (
	// An operator with a space on both sides, as the code is formatted: no pointers, no signs.
	cOperator = regexp.MustCompile(` (==|!=|<=|>=|<<|>>|<|>|&&|\|\||\+|-|&|\|) `)
	// The smaller or larger of two: equal values do the same on both sides.
	cBound  = regexp.MustCompile(`([\w.>\[\]-]+) (<|<=|>|>=) ([\w.>\[\]-]+) \? ([\w.>\[\]-]+) : ([\w.>\[\]-]+)`)
	cNumber = regexp.MustCompile(`[^\w.](\d+)[^\w.]`)
	cHint   = regexp.MustCompile(`\b__builtin_expect(\()`) // what it expects changes no result
	cIf     = regexp.MustCompile(`\b(?:if|while) (\()`)
	// A call, or an assignment to something that has been declared, on a line of its own.
	cCall = regexp.MustCompile(`(?m)^\s+((?:\w+\([^;{}]*\)|[\w.>\[\]-]+ [-+|&]?= [^;{}]*|[\w.>\[\]-]+(?:\+\+|--));)$`)
)

// blankComments replaces comments, strings and preprocessor lines by spaces; offsets stay.
func blankComments(text []byte) []byte {
	code := append([]byte{}, text...)
	for _, m := range cIgnored.FindAllIndex(text, -1) {
		for i := m[0]; i < m[1]; i++ {
			if code[i] != '\n' {
				code[i] = ' '
			}
		}
	}
	return code
}

var cIgnored = regexp.MustCompile(`(?s)/\*.*?\*/|(?-s)//.*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'|(?m)^[ \t]*#(?:\\\n|[^\n])*`)

// closingParenthesis is the offset behind the one that closes the one at open.
func closingParenthesis(code []byte, open int) int {
	for depth, i := 0, open; i < len(code); i++ {
		switch code[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

func onlySpace(code []byte) bool {
	for _, c := range code {
		if c != ' ' && c != '\t' && c != '\n' {
			return false
		}
	}
	return true
}
