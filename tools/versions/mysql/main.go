// Command mysql is a server of MySQL's protocol that is neither MySQL nor MariaDB:
// go-mysql-server, with its tables in memory. tools/versions/test.sh runs tests of the MySQL
// sink with it in the place of mariadbd and mariadb-install-db; it takes their flags.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
)

func main() {
	flags := map[string]string{"--bind-address": "127.0.0.1"}
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		flags[name] = value
	}
	if err := run(flags); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(flags map[string]string) error {
	if _, asked := flags["--version"]; asked {
		fmt.Println("go-mysql-server, with tables in memory")
		return nil
	}
	if filepath.Base(os.Args[0]) == "mariadb-install-db" {
		return os.MkdirAll(flags["--datadir"], 0o700)
	}
	return serve(flags["--bind-address"] + ":" + flags["--port"])
}

// variables are those that the sink asks for, or sets for a session, and the server lacks.
var variables = map[string]int64{"innodb_lock_wait_timeout": 50, "innodb_flush_log_at_trx_commit": 1}

func serve(address string) error {
	for name, value := range variables {
		sql.SystemVariables.AddSystemVariables([]sql.SystemVariable{&sql.MysqlSystemVariable{
			Name: name, Scope: sql.GetMysqlScope(sql.SystemVariableScope_Both), Dynamic: true,
			Type: types.NewSystemIntType(name, 0, 1<<30, false), Default: value,
		}})
	}
	provider := memory.NewDBProvider()
	s, err := server.NewServer(server.Config{Protocol: "tcp", Address: address}, sqle.NewDefault(provider),
		sql.NewContext, memory.NewSessionBuilder(provider), nil)
	if err != nil {
		return err
	}
	return s.Start()
}
