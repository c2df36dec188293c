// Command hostile attacks a live engine: with requests at its HTTP source, its metrics,
// its web console and its socket, and with SQL statements while events arrive. A case fails if the
// engine ends, needs more memory than its bound, or lets a neighbour wait: an ordinary
// sender, monitor or query beside it that is not served within two seconds.
//
//	hostile -perigee bin/perigee            all requests and statements
//	hostile -perigee bin/perigee -only text those whose name contains the text
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	binary := flag.String("perigee", "bin/perigee", "the perigee binary")
	only := flag.String("only", "", "run only cases whose name contains this text")
	verbose := flag.Bool("v", false, "print how each case ended")
	flag.Parse()
	failures := 0
	for _, s := range []suite{
		{name: "hostile_requests", memory: 768 << 20, cases: requestCases()},
		{name: "console_attacks", memory: 1024 << 20, cases: consoleCases()},
		{name: "hostile_sql", memory: 2048 << 20, cases: statementCases()},
	} {
		s.cases = selectCases(s.cases, *only)
		s.verbose = *verbose
		failed, err := s.run(*binary)
		if err != nil {
			fmt.Fprintf(os.Stderr, "hostile: %v\n", err)
			os.Exit(2)
		}
		fmt.Printf("figure %[1]s %[2]d\nfigure %[1]s_failed %[3]d\nfigure %[1]s_ingest_rows_per_s %.0[4]f\nfigure %[1]s_longest_wait_ms %[5]d\n", s.name, len(s.cases), failed, s.rate(), s.longest.Milliseconds())
		if s.name == "console_attacks" {
			fmt.Printf("console_attacks_succeeded %d of %d\n", failed, len(s.cases))
		}
		failures += failed
	}
	os.Exit(min(failures, 1))
}

func selectCases(all []attackCase, only string) (selected []attackCase) {
	for _, c := range all {
		if strings.Contains(c.name, only) {
			selected = append(selected, c)
		}
	}
	return selected
}
