//go:build linux && cgo

package sqlworker

/*
#include <stdlib.h>
#include "script.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	duck "github.com/duckdb/duckdb-go-bindings"

	"github.com/perigeedb/perigee/eventstore/internal/protocol"
	"github.com/perigeedb/perigee/internal/sqltext"
)

// functionsSQL returns SQL that creates the functions in a database.
func functionsSQL(functions []protocol.Function, database uint64) string {
	var sql strings.Builder
	for i, f := range functions {
		fmt.Fprintf(&sql, "CREATE MACRO events.main.%s(document) AS CAST(script_value(%d, %d, CAST(to_json(document) AS VARCHAR)) AS %s);\n", sqltext.QuoteName(f.Name), database, i, f.Type)
	}
	return sql.String()
}

func registerScript(c duck.Connection) error {
	if C.pes_script_register(c.Ptr) == 0 {
		return errors.New("register script_value with DuckDB")
	}
	return nil
}

// scriptCallers holds the jobs that use the databases of this process, by database number.
var scriptCallers struct {
	sync.Mutex
	jobs map[uint64]*scriptCaller
}

// A scriptCaller passes the calls of a query to the parent.
type scriptCaller struct {
	ctx  context.Context
	job  *job
	busy sync.Mutex // serializes calls
}

func setScriptCaller(database uint64, c *scriptCaller) {
	scriptCallers.Lock()
	defer scriptCallers.Unlock()
	if c == nil {
		delete(scriptCallers.jobs, database)
		return
	}
	if scriptCallers.jobs == nil {
		scriptCallers.jobs = map[uint64]*scriptCaller{}
	}
	scriptCallers.jobs[database] = c
}

// pes_script_call computes a function's values for a vector of documents; DuckDB calls it.
//
//export pes_script_call
func pes_script_call(database, function C.int64_t, rows C.uint64_t, cells unsafe.Pointer, validity *C.uint64_t, output, info unsafe.Pointer) {
	scriptCallers.Lock()
	caller := scriptCallers.jobs[uint64(database)]
	scriptCallers.Unlock()
	err := errors.New("a script function is called outside of a query")
	if caller != nil {
		err = caller.fill(int(function), int(rows), cells, validity, output)
	}
	if err != nil {
		text := C.CString(err.Error())
		C.pes_script_fail(info, text)
		C.free(unsafe.Pointer(text))
	}
}

// fill calls a function for the rows of a vector.
func (c *scriptCaller) fill(function, rows int, cells unsafe.Pointer, validity *C.uint64_t, output unsafe.Pointer) error {
	var valid []C.uint64_t
	if validity != nil {
		valid = unsafe.Slice(validity, (rows+63)/64)
	}
	var documents [][]byte
	var at []int // row of each document
	for row := range rows {
		if valid != nil && valid[row/64]>>(row%64)&1 == 0 {
			C.pes_script_set(output, C.uint64_t(row), nil, 0)
			continue
		}
		var length C.uint32_t
		text := C.pes_script_text(cells, C.uint64_t(row), &length)
		documents, at = append(documents, unsafe.Slice((*byte)(unsafe.Pointer(text)), int(length))), append(at, row)
	}
	var values [][]byte
	for len(values) < len(documents) {
		some, err := c.call(function, firstOf(documents[len(values):], callBytes))
		if err != nil {
			return err
		}
		values = append(values, some...)
	}
	for i, row := range at {
		if values[i] == nil {
			C.pes_script_set(output, C.uint64_t(row), nil, 0)
		} else {
			text := append(values[i], 0) // non-empty, so that it has an address
			C.pes_script_set(output, C.uint64_t(row), (*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.uint64_t(len(text)-1))
		}
	}
	return nil
}

// callBytes is the approximate maximum of document bytes in one call.
const callBytes = 8 << 20

// firstOf returns the longest prefix of documents within limit bytes, but at least one
// document.
func firstOf(documents [][]byte, limit int) [][]byte {
	for i, d := range documents {
		if limit -= len(d); limit < 0 {
			return documents[:max(i, 1)]
		}
	}
	return documents
}

// call requests values from the parent.
func (c *scriptCaller) call(function int, documents [][]byte) ([][]byte, error) {
	c.busy.Lock()
	defer c.busy.Unlock()
	if c.ctx.Err() != nil {
		return nil, context.Cause(c.ctx)
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(function))
	if err := c.job.out.Write(protocol.CallMessage, head, protocol.AppendTexts(nil, documents)); err != nil {
		return nil, err
	}
	if err := c.job.out.Flush(); err != nil {
		return nil, err
	}
	select {
	case body := <-c.job.values:
		if len(body) == 0 {
			return nil, protocol.ErrInvalidMessage
		}
		values, err := protocol.SplitTexts(body[1:])
		if err == nil && body[0] != 0 {
			return nil, errors.New(string(values[0]))
		}
		if err == nil && len(values) != len(documents) {
			err = protocol.ErrInvalidMessage
		}
		return values, err
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}
