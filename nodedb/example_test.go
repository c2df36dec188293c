//go:build cgo && lmdb

package nodedb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/perigeedb/perigee/nodedb"
)

// openExample opens a store in a new folder.
func openExample() (*nodedb.Store, func()) {
	folder, err := os.MkdirTemp("", "nodedb")
	if err != nil {
		log.Fatal(err)
	}
	store, err := nodedb.Open(folder, nodedb.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return store, func() {
		if err := errors.Join(store.Close(), os.RemoveAll(folder)); err != nil {
			log.Fatal(err)
		}
	}
}

func Example() {
	store, done := openExample()
	defer done()
	ctx := context.Background()

	users := nodedb.Name("^users")
	err := store.Update(ctx, func(tx *nodedb.Tx) error {
		if err := tx.Set(users.At(7, "name"), "Ada"); err != nil {
			return err
		}
		_, err := tx.Increment(users.At(7, "visits"), 1)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	err = store.View(ctx, func(tx *nodedb.Tx) error {
		for node, err := range tx.Walk(ctx, users, nodedb.Range{}) {
			if err != nil {
				return err
			}
			fmt.Println(node.Path, node.Value)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// ^users(7,"name") Ada
	// ^users(7,"visits") 1
}

func ExampleStore_Update() {
	store, done := openExample()
	defer done()
	ctx := context.Background()

	// Move an amount from one account to another. If another transaction changes one of them
	// meanwhile, the function runs again.
	accounts := nodedb.Name("^accounts")
	errBroke := errors.New("not enough money")
	transfer := func(from, to string, amount int) error {
		return store.Update(ctx, func(tx *nodedb.Tx) error {
			rest, err := tx.Increment(accounts.At(from), -amount)
			if err != nil {
				return err
			}
			if n, _ := rest.Float(); n < 0 {
				return errBroke
			}
			_, err = tx.Increment(accounts.At(to), amount)
			return err
		})
	}
	err := store.Update(ctx, func(tx *nodedb.Tx) error { return tx.Set(accounts.At("ada"), 100) })
	fmt.Println(err, transfer("ada", "bob", 70), transfer("ada", "bob", 70))
	// Output: <nil> <nil> not enough money
}

func ExampleSession_Children() {
	store, done := openExample()
	defer done()
	s, err := store.Session()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	log := nodedb.Name("^log")
	for i, line := range []string{"start", "work", "work", "stop"} {
		if err := s.Set(log.At(100+i), line); err != nil {
			fmt.Println(err)
		}
	}
	for child, err := range s.Children(context.Background(), log, nodedb.Range{From: 103, To: 101, Reverse: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(child.Subscript, child.Value)
	}
	// Output:
	// 103 stop
	// 102 work
	// 101 work
}

func ExampleSession_Lock() {
	store, done := openExample()
	defer done()
	one, err := store.Session()
	if err != nil {
		log.Fatal(err)
	}
	defer one.Close()
	other, err := store.Session()
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()

	job := nodedb.Name("^jobs").At("report")
	fmt.Println(one.Lock(context.Background(), job))
	soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(errors.Is(other.Lock(soon, job), nodedb.ErrTimeout))
	// Output:
	// <nil>
	// true
}

func ExampleSession_Expire() {
	store, done := openExample()
	defer done()
	s, err := store.Session()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	token := nodedb.Name("^sessions").At("k3j9")
	if err := s.Set(token, 7); err != nil {
		log.Fatal(err)
	}
	if _, err := s.Expire(token, 30*time.Minute); err != nil {
		log.Fatal(err)
	}
	ttl, limited, err := s.TTL(token)
	fmt.Println(ttl > 29*time.Minute, limited, err)
	// Output: true true <nil>
}

func ExampleStore_Dump() {
	store, done := openExample()
	defer done()
	ctx := context.Background()

	err := store.Update(ctx, func(tx *nodedb.Tx) error {
		return tx.Set(nodedb.Name("^greetings").At("é", -0.5), "line 1\nline 2")
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Dump(ctx, os.Stdout, nil); err != nil {
		log.Fatal(err)
	}
	// Output: ^greetings("é",-.5)="line 1"_$C(10)_"line 2"
}
