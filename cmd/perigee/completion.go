package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Examples:
  source <(perigee completion bash)
  perigee completion zsh > "${fpath[1]}/_perigee"
  perigee completion fish > ~/.config/fish/completions/perigee.fish`
}

func (m *completionCommand) Run(c *console, parser *kong.Kong) error {
	write := map[string]func([]completion) string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[m.Shell]
	_, err := fmt.Fprint(c.out, write(completionsOf(parser.Model.Node, "")))
	return err
}

// A completion is a command and the words that can follow it.
type completion struct {
	path  string // "dlq list"; empty for perigee itself
	words []word
}

type word struct{ text, help string }

// completionsOf returns the completions of a command and of its subcommands.
func completionsOf(n *kong.Node, path string) []completion {
	one := completion{path: path}
	var below []completion
	for _, child := range n.Children {
		one.words = append(one.words, word{child.Name, child.Help})
		below = append(below, completionsOf(child, strings.TrimSpace(path+" "+child.Name))...)
	}
	for _, argument := range n.Positional {
		for _, choice := range argument.EnumSlice() {
			if choice != "" {
				one.words = append(one.words, word{choice, argument.Help})
			}
		}
	}
	for _, flag := range n.Flags {
		one.words = append(one.words, word{"--" + flag.Name, flag.Help})
	}
	return append([]completion{one}, below...)
}

// caseArms writes the arms of a shell's case: the words after each command line. The longest
// come first, because an arm matches by prefix.
func caseArms(all []completion, arm string) string {
	var s strings.Builder
	for _, c := range slices.Backward(all) {
		var texts []string
		for _, w := range c.words {
			texts = append(texts, w.text)
		}
		fmt.Fprintf(&s, arm, strings.TrimSpace("perigee "+c.path), strings.Join(texts, " "))
	}
	return s.String()
}

func bashScript(all []completion) string {
	return `_perigee() {
  local before="perigee" words="" w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$w" in -*) ;; *) before="$before $w" ;; esac
  done
  case "$before" in
` + caseArms(all, "    %q*) words=%q ;;\n") + `  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -F _perigee perigee
`
}

func zshScript(all []completion) string {
	return `#compdef perigee
_perigee() {
  local before="perigee" candidates="" w
  for w in ${words[2,CURRENT-1]}; do
    case "$w" in -*) ;; *) before="$before $w" ;; esac
  done
  case "$before" in
` + caseArms(all, "    %q*) candidates=%q ;;\n") + `  esac
  compadd -- ${=candidates}
  _files
}
compdef _perigee perigee
`
}

func fishScript(all []completion) string {
	var s strings.Builder
	for _, c := range all {
		condition := "__fish_use_subcommand"
		if c.path != "" {
			condition = "__fish_seen_subcommand_from " + strings.Join(strings.Fields(c.path), "; and __fish_seen_subcommand_from ")
		}
		for _, w := range c.words {
			option := "-a " + w.text
			if name, flag := strings.CutPrefix(w.text, "--"); flag {
				option = "-l " + name
			}
			fmt.Fprintf(&s, "complete -c perigee -n %q %s -d %q\n", condition, option, w.help)
		}
	}
	return s.String()
}
