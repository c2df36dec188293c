package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/perigeedb/perigee/event"
	"github.com/perigeedb/perigee/nodedb"
)

// StatePrefix begins the addresses of nodes: /state/NAME/PATH.
const StatePrefix = "/state/"

const (
	childrenDefault = 100     // in an answer, if the request does not say
	childrenMax     = 1000    // in an answer
	childBytesMax   = 4 << 20 // of the values of children in an answer; then the next one continues
)

// A NodeAnswer is a node of a state, and some of its children.
type NodeAnswer struct {
	State    string          `json:"state"`
	Unit     string          `json:"unit"`
	Path     string          `json:"path"` // "" for the root, whose children are the names
	Type     string          `json:"type"` // "absent" if it has no value
	Value    json.RawMessage `json:"value"`
	Children []NodeChild     `json:"children"`
	// Next has the parameters of the request that continues with the next child; "" after the last.
	Next string `json:"next,omitempty"`
}

// A NodeChild is a child of a node. One without a value has descendants.
type NodeChild struct {
	Subscript json.RawMessage `json:"subscript"`
	Type      string          `json:"type"`
	Value     json.RawMessage `json:"value"`
}

// A statusError is an error and the status of its answer.
type statusError struct {
	error
	status int
	owner  string // of the unit, if it is elsewhere
}

func (e *statusError) Unwrap() error { return e.error }

func refuse(status int, hint, format string, args ...any) error {
	return &statusError{error: event.WithHint(fmt.Errorf(format, args...), hint), status: status}
}

// StateHandler answers GET /state/NAME/PATH with committed nodes of the states of the running
// pipelines. PATH is a name and subscripts, each escaped as a part of a URL. It expects the whole
// path of the URL, and no ServeMux before it, which would clean that path.
func (a *Admin) StateHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeStateError(w, refuse(http.StatusMethodNotAllowed, "use GET", "nodes can only be read"))
			return
		}
		answer, err := a.answerNode(r)
		if err != nil {
			writeStateError(w, err)
			return
		}
		json.NewEncoder(w).Encode(answer) // the client may be gone
	})
}

func writeStateError(w http.ResponseWriter, err error) {
	answer := struct {
		*event.Fault
		Owner string `json:"owner,omitempty"`
	}{Fault: event.FaultOf(err)}
	status := http.StatusInternalServerError
	if known, ok := errors.AsType[*statusError](err); ok {
		status, answer.Owner = known.status, known.owner
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer) // the client may be gone
}

// A nodeRequest is what a request asks for.
type nodeRequest struct {
	state, unit string
	path        nodedb.Path // zero for the root
	from        string
	continues   bool // from is set
	limit       int
}

func (a *Admin) answerNode(r *http.Request) (*NodeAnswer, error) {
	q, err := parseNodeRequest(r.URL)
	if err != nil {
		return nil, err
	}
	p, err := a.findState(q.state)
	if err != nil {
		return nil, &statusError{error: err, status: http.StatusNotFound}
	}
	if p.Running == nil {
		return nil, refuse(http.StatusServiceUnavailable, "start the engine", "pipeline %s does not run", p.Name)
	}
	if q.unit == "" && p.State.Shared {
		q.unit = p.State.UnitOf("")
	}
	if q.unit == "" {
		owned := p.Running.OwnedUnits()
		return nil, refuse(http.StatusBadRequest, "this worker has "+strings.Join(owned[:min(len(owned), 10)], ", "),
			"state %s has a unit for each partition: name one with ?unit=", q.state)
	}
	answer := &NodeAnswer{State: q.state, Unit: q.unit, Children: []NodeChild{}}
	owned, err := p.Running.ViewOwned(r.Context(), q.unit, func(tx *nodedb.Tx) error { return q.read(r.Context(), tx, answer) })
	if err != nil {
		return nil, err
	}
	if !owned {
		return nil, p.findOwner(r.Context(), q)
	}
	if answer.Type == nodedb.Absent.String() && len(answer.Children) == 0 && answer.Next == "" && !q.continues && !q.path.IsZero() {
		return nil, refuse(http.StatusNotFound, "list what there is: perigee state walk", "%v has no value and no children in unit %s of state %s", q.path, q.unit, q.state)
	}
	return answer, nil
}

// findOwner returns an error that names the worker that has a unit.
func (p *Pipeline) findOwner(ctx context.Context, q *nodeRequest) error {
	units, err := p.State.Units(ctx)
	if err != nil {
		return fmt.Errorf("ask sink %s: %w", p.State.HomeName, err)
	}
	status, known := units[q.unit]
	if !known {
		return refuse(http.StatusNotFound, "list the units: perigee state list", "state %s has no unit %q", q.state, q.unit)
	}
	return &statusError{
		error:  event.WithHint(fmt.Errorf("unit %s of state %s is not open on this worker", q.unit, q.state), "ask its owner, "+status.Owner),
		status: http.StatusMisdirectedRequest, owner: status.Owner,
	}
}

// parseNodeRequest reads the address /state/NAME/^NAME/SUBSCRIPT/….
func parseNodeRequest(u *url.URL) (*nodeRequest, error) {
	raw := u.RawPath // as it was sent, where that is not what EscapedPath makes of it
	if raw == "" {
		raw = u.EscapedPath()
	}
	path, ok := strings.CutPrefix(raw, StatePrefix)
	if !ok {
		return nil, refuse(http.StatusNotFound, "a path looks like "+StatePrefix+"NAME/^users/7", "the path does not begin with %s", StatePrefix)
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "escape each part of the path as a URL does", "read the path: %w", err)
		}
		parts[i] = text
	}
	q := &nodeRequest{state: parts[0], limit: childrenDefault}
	if len(parts) > 1 && !(len(parts) == 2 && parts[1] == "") {
		q.path = nodedb.Name(parts[1])
		for _, subscript := range parts[2:] {
			q.path = q.path.At(subscript)
		}
		if err := q.path.Err(); err != nil {
			return nil, refuse(http.StatusBadRequest, "a path looks like ^users/7/name", "read the path: %w", err)
		}
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "use unit=, from= and limit=", "read the parameters: %w", err)
	}
	for name, value := range values {
		switch name {
		case "unit":
			q.unit = value[0]
		case "from":
			q.from, q.continues = value[0], true
		case "limit":
			if q.limit, err = strconv.Atoi(value[0]); err != nil || q.limit < 0 || q.limit > childrenMax {
				return nil, refuse(http.StatusBadRequest, fmt.Sprintf("use a number from 0 to %d", childrenMax), "invalid limit %q", value[0])
			}
		default:
			return nil, refuse(http.StatusBadRequest, "use unit=, from= and limit=", "unknown parameter %q", name)
		}
	}
	return q, nil
}

// read reads the node, and children up to the limit.
func (q *nodeRequest) read(ctx context.Context, tx *nodedb.Tx, answer *NodeAnswer) error {
	var value nodedb.Value
	var err error
	if !q.path.IsZero() {
		answer.Path = q.path.String()
		if value, err = tx.Get(q.path); err != nil {
			return err
		}
	}
	answer.Type = value.Kind().String()
	if answer.Value, err = json.Marshal(value); err != nil {
		return err
	}
	r, bytes := nodedb.Range{}, 0
	if q.continues {
		r.From = q.from
	}
	for child, err := range tx.Children(ctx, q.path, r) {
		if err != nil {
			return err
		}
		if len(answer.Children) == q.limit || bytes > childBytesMax {
			answer.Next = url.Values{"from": {child.Subscript.String()}, "limit": {strconv.Itoa(q.limit)}, "unit": {q.unit}}.Encode()
			return nil
		}
		one := NodeChild{Type: child.Value.Kind().String()}
		if one.Subscript, err = json.Marshal(child.Subscript); err != nil {
			return err
		}
		if one.Value, err = json.Marshal(child.Value); err != nil {
			return err
		}
		bytes += len(one.Value)
		answer.Children = append(answer.Children, one)
	}
	return nil
}
