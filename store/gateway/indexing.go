package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// indexingPolicy is the part of an indexing policy that Millrace reads. Each included path of
// one scalar, such as /name/? or /tags/[]/id/?, becomes a declared index, up to
// store.IndexesMax in their order. A wildcard makes no index. A query without an index
// scans, so a policy never changes the rows of a query.
type indexingPolicy struct {
	Mode     string      `json:"indexingMode"`
	Included []indexPath `json:"includedPaths"`
	Excluded []indexPath `json:"excludedPaths"` // kept and shown alone
}

type indexPath struct {
	Path string `json:"path"`
}

// indexesOf returns the indexes that a policy declares.
func indexesOf(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var policy indexingPolicy
	if err := json.Unmarshal(raw, &policy); err != nil {
		return nil, refuse(http.StatusBadRequest, "indexingPolicy: %v", err)
	}
	if slices.Contains(policy.Excluded, indexPath{}) {
		return nil, refuse(http.StatusBadRequest, "indexingPolicy: an excluded path has no path")
	}
	switch strings.ToLower(policy.Mode) {
	case "", "consistent", "lazy":
	case "none":
		return nil, nil
	default:
		return nil, refuse(http.StatusBadRequest, "indexingPolicy.indexingMode is %q; consistent or none is expected", clip(policy.Mode))
	}
	var indexes []string
	for _, p := range policy.Included {
		scalar, ok := strings.CutSuffix(p.Path, "/?")
		if !ok {
			if p.Path != "/" && !strings.HasSuffix(p.Path, "/*") {
				return nil, refuse(http.StatusBadRequest, "indexingPolicy: the included path %q ends neither with /? nor with /*", clip(p.Path))
			}
			continue
		}
		pointer, err := pointerOf(scalar)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "indexingPolicy: %v", err)
		}
		if strings.Count(pointer+"/", "/*/") > 1 || isItemOwn(pointer) || slices.Contains(indexes, pointer) {
			continue // arrays in arrays have no index; id and system properties need none
		}
		indexes = append(indexes, pointer)
	}
	return indexes[:min(len(indexes), store.IndexesMax)], nil
}

// isItemOwn reports whether a path is the id, or a system property or in one.
func isItemOwn(pointer string) bool { return pointer == "/id" || store.IsSystemPath(pointer) }

// indexingPolicyOf returns the declared policy if it still matches the indexes, else one made
// from the indexes: YAML may have changed them since.
func indexingPolicyOf(spec *store.ContainerSpec, declared json.RawMessage) json.RawMessage {
	if len(declared) > 0 && string(declared) != "null" {
		if indexes, err := indexesOf(declared); err == nil && slices.Equal(indexes, spec.Indexes) {
			return completePolicy(declared)
		}
	}
	policy := struct {
		Mode      string      `json:"indexingMode"`
		Automatic bool        `json:"automatic"`
		Included  []indexPath `json:"includedPaths"`
		Excluded  []indexPath `json:"excludedPaths"`
	}{Mode: "consistent", Automatic: true, Included: []indexPath{{allPaths}}, Excluded: []indexPath{{etagPath}}}
	for _, pointer := range spec.Indexes {
		policy.Included = append(policy.Included, indexPath{pathOf(pointer) + "/?"})
	}
	raw, err := json.Marshal(policy)
	if err != nil {
		panic(fmt.Sprintf("gateway: an indexing policy cannot be marshalled: %v", err))
	}
	return raw
}

// What the service puts into each policy.
const (
	allPaths = "/*"
	etagPath = `/"_etag"/?`
)

// completePolicy returns a declared policy as the service shows it: / among the included paths is written /*,
// etags are excluded, kinds of indexes that it chooses by itself today are dropped, and what was left out has its default. What
// else it holds stays as it was sent.
func completePolicy(declared json.RawMessage) json.RawMessage {
	var policy map[string]json.RawMessage
	if err := json.Unmarshal(declared, &policy); err != nil || policy == nil {
		return declared // which indexesOf has refused
	}
	mode := strings.Trim(strings.ToLower(string(policy["indexingMode"])), `"`)
	setDefault := func(name, value string) {
		if isNull(policy[name]) {
			policy[name] = json.RawMessage(value)
		}
	}
	setDefault("indexingMode", `"consistent"`)
	if mode == "none" {
		setDefault("automatic", "false")
		setDefault("includedPaths", "[]")
		setDefault("excludedPaths", "[]")
	} else {
		setDefault("automatic", "true")
		excluded := pathsOf(policy["excludedPaths"])
		included := pathsOf(policy["includedPaths"])
		for _, p := range included {
			dropKinds(p)
		}
		if isNull(policy["includedPaths"]) && !slices.ContainsFunc(excluded, isPath(allPaths)) {
			included = append(included, map[string]json.RawMessage{"path": quoted(allPaths)})
		}
		if !slices.ContainsFunc(excluded, isPath(etagPath)) {
			excluded = append(excluded, map[string]json.RawMessage{"path": quoted(etagPath)})
		}
		policy["includedPaths"], policy["excludedPaths"] = encodePaths(included), encodePaths(excluded)
	}
	raw, err := json.Marshal(policy)
	if err != nil {
		panic(fmt.Sprintf("gateway: an indexing policy cannot be marshalled: %v", err))
	}
	return raw
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func quoted(text string) json.RawMessage {
	return document.AppendQuote(nil, text)
}

// pathsOf reads a list of paths with what else each holds, and writes / as /*.
func pathsOf(raw json.RawMessage) []map[string]json.RawMessage {
	var paths []map[string]json.RawMessage
	_ = json.Unmarshal(raw, &paths) // what is no list has no paths
	for _, p := range paths {
		if isPath("/")(p) {
			p["path"] = quoted(allPaths)
		}
	}
	return paths
}

func isPath(want string) func(map[string]json.RawMessage) bool {
	return func(p map[string]json.RawMessage) bool {
		var path string
		return json.Unmarshal(p["path"], &path) == nil && path == want
	}
}

// dropKinds takes the indexes of the kinds Hash and Range, which policies of early versions name, out of an included path.
func dropKinds(path map[string]json.RawMessage) {
	var indexes []json.RawMessage
	if json.Unmarshal(path["indexes"], &indexes) != nil {
		return
	}
	indexes = slices.DeleteFunc(indexes, func(raw json.RawMessage) bool {
		var index struct{ Kind string }
		return json.Unmarshal(raw, &index) == nil && (strings.EqualFold(index.Kind, "Hash") || strings.EqualFold(index.Kind, "Range"))
	})
	delete(path, "indexes")
	if len(indexes) > 0 {
		path["indexes"], _ = json.Marshal(indexes) // what was JSON stays JSON
	}
}

func encodePaths(paths []map[string]json.RawMessage) json.RawMessage {
	if paths == nil {
		return json.RawMessage("[]")
	}
	raw, err := json.Marshal(paths)
	if err != nil {
		panic(fmt.Sprintf("gateway: paths of an indexing policy cannot be marshalled: %v", err))
	}
	return raw
}

// indexProgressTime bounds how long the owners of a container are asked for the progress of its indexes: the container is
// told without it while a partition has no owner.
const indexProgressTime = time.Second

// indexProgress returns how much of the indexes of a container is made, in per cent: each index of each
// partition counts the same, and one that is being built counts nothing. ok is false where an owner does not tell.
func (s *Server) indexProgress(ctx context.Context, info *store.ContainerInfo) (percent int, ok bool) {
	ct, err := s.client.Open(*info)
	if err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, indexProgressTime)
	defer cancel()
	all, ready := 0, 0
	for _, p := range ct.Partitions() {
		status, err := ct.Status(ctx, p)
		if err != nil {
			return 0, false
		}
		for _, path := range info.Spec.Indexes {
			all++
			if slices.Contains(status.Indexes, store.IndexState{Path: path, Ready: true}) {
				ready++
			}
		}
	}
	if all == 0 {
		return 100, true
	}
	return 100 * ready / all, true
}

// pointerOf turns a path of the protocol, /a/"b c"/'d "e"'/[]/f, into a JSON pointer.
func pointerOf(path string) (string, error) {
	bad := fmt.Errorf("the path %q is none; a path such as /name or /address/city is expected", clip(path))
	if len(path) < 2 || path[0] != '/' {
		return "", bad
	}
	var out strings.Builder
	// A name in quotes of either kind may hold slashes, and the quotes of the other kind, so the path is not split at slashes.
	for rest := path; rest != ""; {
		rest = rest[1:] // the slash
		var name string
		switch {
		case strings.HasPrefix(rest, `"`), strings.HasPrefix(rest, "'"):
			end := strings.IndexByte(rest[1:], rest[0])
			if end < 0 {
				return "", bad
			}
			name, rest = rest[1:end+1], rest[end+2:]
		default:
			end := strings.IndexByte(rest, '/')
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
		}
		// * means every element in a pointer, so it cannot be a name; nor can a name with quotes of
		// both kinds, which the protocol cannot write.
		if name == "" || name == "*" || strings.Contains(name, `"`) && strings.Contains(name, "'") || rest != "" && rest[0] != '/' {
			return "", bad
		}
		if name == "[]" {
			name = "*"
		}
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	if _, err := document.ParsePointer(out.String()); err != nil {
		return "", bad
	}
	return out.String(), nil
}

// pathOf turns a JSON pointer into a path of the protocol. A name with other characters than
// those of a plain name is quoted.
func pathOf(pointer string) string {
	var out strings.Builder
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		name := strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch {
		case name == "*":
			name = "[]"
		case strings.Contains(name, `"`):
			name = "'" + name + "'"
		case strings.ContainsAny(name, "/ ~-'") || name == "":
			name = `"` + name + `"`
		}
		out.WriteString("/" + name)
	}
	return out.String()
}
