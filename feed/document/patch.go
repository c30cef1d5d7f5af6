package document

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed/document/scan"
)

// OpsMax is how many operations a client's patch may have.
const OpsMax = 10

// The operations of a patch.
const (
	OpAdd     = "add"     // sets a member; in an array inserts before the index or at the end
	OpSet     = "set"     // sets a member; in an array replaces the element or appends
	OpReplace = "replace" // gives what is there a new value
	OpRemove  = "remove"  // removes what is there
	OpIncr    = "incr"    // adds to the number that is there; what is missing becomes the number
	OpMove    = "move"    // removes what is at From and adds it at Path
)

// Op is one operation of a patch as the Azure Cosmos DB REST protocol writes it:
//
//	{"op":"set", "path":"/tags/[id=\"x\"]/name", "value":"New"}
//
// Its paths are JSON pointers. Where a step meets an array it is an index, - for
// the place after the last element, or [key=value] for the first element that is
// an object with that member, the value written as JSON.
type Op struct {
	Kind string `json:"op"`
	Path string `json:"path"`
	// From is the path of the value that a move moves.
	From string `json:"from,omitempty"`
	// Value is the value that add, set and replace write, null if it is missing, and the
	// number that incr adds.
	Value json.RawMessage `json:"value,omitempty"`
}

// PatchRules are the rules that a patch must keep.
type PatchRules struct {
	// OpsMax bounds the operations. Default 10, the constant OpsMax; negative: no bound.
	OpsMax int
	// Protected are paths that no operation may change, those of the partition
	// key. The id and the properties that the store adds to items are always
	// protected.
	Protected []Path
}

// Patch is a compiled list of operations, carried out in order, all or none.
type Patch struct {
	ops []patchOp
}

// patchOp is a compiled operation.
type patchOp struct {
	Op
	path, from Path
	value      []byte // trimmed
	member     []byte // `,"name":value`, made once for all items that the patch meets
	valueAt    int    // where in member the value begins
}

// systemProperties are members that the store adds to the items that it answers.
var systemProperties = []string{"_rid", "_self", "_etag", "_ts", "_attachments"}

// CompilePatch compiles 1 to OpsMax operations without protected paths but the
// id and system properties. The error is a *PatchError.
func CompilePatch(ops []Op) (*Patch, error) { return PatchRules{}.Compile(ops) }

// Compile compiles operations under the rules. The error is a *PatchError.
func (r PatchRules) Compile(ops []Op) (*Patch, error) {
	if len(ops) == 0 {
		return nil, &PatchError{Op: -1, Msg: "a patch has at least one operation"}
	}
	most := r.OpsMax
	if most == 0 {
		most = OpsMax
	}
	if most > 0 && len(ops) > most {
		return nil, &PatchError{Op: -1, Msg: fmt.Sprintf("the patch has %d operations, more than %d", len(ops), most)}
	}
	p := &Patch{ops: make([]patchOp, len(ops))}
	for i, op := range ops {
		p.ops[i].Op = op
		if err := p.ops[i].compile(r.Protected); err != nil {
			err.Op = i
			if err.Path == "" {
				err.Path = op.Path
			}
			return nil, err
		}
	}
	return p, nil
}

// compile reads the operation's paths and value.
func (o *patchOp) compile(protected []Path) *PatchError {
	var err *PatchError
	if o.path, err = opPath(o.Path, protected); err != nil {
		return err
	}
	switch o.Kind {
	case OpRemove:
		return nil
	case OpMove:
		if o.from, err = opPath(o.From, protected); err != nil {
			err.Path = o.From
			return err
		}
		// A value cannot move into itself: it would be gone before it is added.
		if len(o.path) > len(o.from) && o.from.Pointer() == o.path[:len(o.from)].Pointer() {
			return &PatchError{Msg: fmt.Sprintf("lies within %q, which is moved", o.From)}
		}
		return nil
	case OpAdd, OpSet, OpReplace, OpIncr:
	default:
		return &PatchError{Msg: fmt.Sprintf("there is no operation %q, only add, set, replace, remove, incr and move", o.Kind)}
	}
	if o.value = scan.Trim(o.Value); len(o.value) == 0 {
		if o.Kind == OpIncr {
			return &PatchError{Msg: "incr has no value"}
		}
		o.value = []byte("null")
	}
	deep, problem := check(o.value, 1)
	switch {
	case problem != nil:
		return &PatchError{Msg: "the value is no JSON: " + problem.Error()}
	case o.Kind == OpIncr && !isNumber(o.value):
		return &PatchError{Msg: fmt.Sprintf("incr adds a number, not %s", KindOf(o.value))}
	case len(o.path)+deep > DepthMax:
		return &PatchError{Msg: fmt.Sprintf("the item would be nested more than %d deep", DepthMax)}
	}
	o.member = append(AppendQuote([]byte{','}, o.path[len(o.path)-1].Name), ':')
	o.valueAt = len(o.member)
	o.member = append(o.member, o.value...)
	return nil
}

// opPath reads the path of an operation and refuses protected ones.
func opPath(pointer string, protected []Path) (Path, *PatchError) {
	path, err := ParsePointer(pointer)
	if err != nil {
		return nil, &PatchError{Msg: err.Error()}
	}
	if len(path) == 0 {
		return nil, &PatchError{Msg: "a patch changes values in an item, not the item itself; replace it"}
	}
	if slices.Contains(systemProperties, path[0].Name) {
		return nil, &PatchError{Msg: "is the store's own"}
	}
	if path[0].Name == "id" {
		return nil, &PatchError{Msg: "the id of an item cannot be changed"}
	}
	// A parent of the key holds it, and a child of it would change it.
	for _, key := range protected {
		if path.covers(key) || key.covers(path) {
			return nil, &PatchError{Msg: key.Pointer() + " is part of the partition key, which cannot be changed"}
		}
	}
	return path, nil
}

// parentPointer returns the pointer of what holds the value at pointer.
func parentPointer(pointer string) string {
	return pointer[:strings.LastIndexByte(pointer, '/')]
}
