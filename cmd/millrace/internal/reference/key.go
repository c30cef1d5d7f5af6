package reference

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Tree is all that can be written in documents.
type Tree struct {
	// Kinds are the documents, in order of name.
	Kinds []*Key
}

// Key is what can be written in one place of a document.
type Key struct {
	// Path is the kind in small letters and the keys on the way, joined by dots:
	// pipeline.spec.cascade.match. The names of a mapping's entries, such as those of
	// tables, are passed over.
	Path string `json:"path"`
	// Type is a word or some: string, expression, list of fields, object.
	Type string `json:"type"`
	// Required says that the key cannot be left out.
	Required bool `json:"required,omitempty"`
	// Default is what counts where the key is left out, in the words of Text; "" if
	// Text names none.
	Default string `json:"default,omitempty"`
	// Values are the only ones that are taken; none if there are more.
	Values []string `json:"values,omitempty"`
	// Limits are what a schema can say beyond the type.
	Limits []string `json:"limits,omitempty"`
	// Example is a value, "" if Text is enough.
	Example string `json:"example,omitempty"`
	// Text says what the key means.
	Text string `json:"text"`
	// Keys are those of an object, or of each entry of a mapping of objects.
	Keys []*Key `json:"keys,omitempty"`
}

// Name returns the last part of the path.
func (k *Key) Name() string { return k.Path[strings.LastIndexByte(k.Path, '.')+1:] }

// New reads a schema, as configs.Schema is one.
func New(text string) (*Tree, error) {
	root := &schema{}
	if err := json.Unmarshal([]byte(text), root); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	b := &builder{definitions: root.Definitions}
	t := &Tree{}
	for _, one := range root.OneOf {
		def := root.Definitions[one.definition()]
		if def == nil {
			return nil, fmt.Errorf("read the schema: %s is not defined", one.Ref)
		}
		k := b.key(strings.ToLower(one.definition()), one)
		t.Kinds = append(t.Kinds, k)
	}
	return t, nil
}

// builder makes keys of schemas.
type builder struct{ definitions map[string]*schema }

// key says what s is at a path.
func (b *builder) key(path string, s *schema) *Key {
	k := &Key{Path: path, Type: b.typeOf(s)}
	object, entry := b.object(s)
	name := k.Name()
	k.Text = spell(s.Description, name)
	switch {
	case object != nil && entry:
		k.Text = join(k.Text, spell(object.Description, "An entry"))
	case object != nil && k.Text != "":
		// The first sentence of a type says what the key that has it said already:
		//
		//	s3 is a bucket of Amazon S3 or of a store that speaks its protocol.
		//	S3 is a bucket. Its credentials are never written down: ...
		_, rest, _ := strings.Cut(object.Description, ". ")
		k.Text = join(k.Text, rest)
	case object != nil:
		k.Text = spell(object.Description, name)
	}
	if object != nil {
		k.Limits = append(k.Limits, choices(object)...)
	}
	k.Limits = append(limits(s), k.Limits...)
	k.Values, k.Default, k.Example = valuesOf(s), defaultOf(s), exampleOf(s)
	if object == nil {
		return k
	}
	for _, p := range object.Properties {
		child := b.key(path+"."+p.name, p.schema)
		child.Required = slices.Contains(object.Required, p.name)
		for _, needs := range object.Dependent[p.name] {
			child.Limits = append(child.Limits, "needs "+needs)
		}
		k.Keys = append(k.Keys, child)
	}
	return k
}

// object returns what s describes that has keys of its own: itself, what it refers to, or
// what each of its entries is. It is nil if there is none.
func (b *builder) object(s *schema) (object *schema, entry bool) {
	switch {
	case len(s.Properties) > 0:
		return s, false
	case s.Ref != "":
		return b.definitions[s.definition()], false
	case s.Additional.schema != nil:
		object, _ = b.object(s.Additional.schema)
		return object, true
	case s.Items != nil:
		object, _ = b.object(s.Items)
		return object, true
	}
	for _, one := range s.OneOf {
		if object, entry := b.object(one); object != nil {
			return object, entry
		}
	}
	return nil, false
}

// typeOf names what s takes.
func (b *builder) typeOf(s *schema) string {
	switch {
	case s.Title != "":
		return s.Title
	case s.Ref != "":
		return "object"
	case s.Type == "array" && s.Items != nil:
		return "list of " + plural(b.typeOf(s.Items))
	case s.Type == "object" && s.Additional.schema != nil:
		return "map of " + plural(b.typeOf(s.Additional.schema))
	case s.Type != "":
		return s.Type
	}
	var types []string
	for _, one := range s.OneOf {
		t := b.typeOf(one)
		if len(one.Enum) > 0 && one.Type == "" {
			t = strings.Join(texts(one.Enum), " or ")
		}
		// What is null is a piece of an expression that YAML cut up: nothing to write.
		if t != "null" && !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return strings.Join(types, " or ")
}

// plural makes "fields or lists of fields" of "field or list of fields".
func plural(t string) string {
	parts := strings.Split(t, " or ")
	for i, p := range parts {
		word, rest, _ := strings.Cut(p, " ")
		if parts[i] = word + "s"; rest != "" {
			parts[i] += " " + rest
		}
	}
	return strings.Join(parts, " or ")
}

// choices says of which keys of an object one is expected, or one at least.
func choices(s *schema) []string {
	names := func(of []*schema) (all []string) {
		for _, one := range of {
			all = append(all, one.Required...)
		}
		return all
	}
	var found []string
	if one := names(s.OneOf); len(one) > 1 {
		found = append(found, "exactly one of "+list(one))
	}
	if one := names(s.AnyOf); len(one) > 1 {
		found = append(found, "at least one of "+list(one))
	}
	return found
}

// limits says what a schema can say beyond the type.
func limits(s *schema) []string {
	var found []string
	between := func(least, most, what string) {
		switch {
		case least != "" && most != "":
			found = append(found, least+" to "+most+what)
		case least != "":
			found = append(found, "at least "+least+what)
		case most != "":
			found = append(found, "at most "+most+what)
		}
	}
	between(s.Minimum.String(), s.Maximum.String(), "")
	between(count(max(s.MinItems, s.MinProperties)), count(max(s.MaxItems, s.MaxProperties)), " entries")
	for i := range found {
		found[i] = strings.Replace(found[i], "at least 1 entries", "at least 1 entry", 1)
	}
	return found
}

// count writes a number, "" for none.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func valuesOf(s *schema) []string {
	if s.Const != nil {
		return texts([]any{s.Const})
	}
	return texts(s.Enum)
}

// defaultWords find the default in a description:
//
//	Default 5s.
//	Default: all items.
//	Default false: the fields appear when the item does.
var defaultWords = regexp.MustCompile(`Default:? (.+?)(?:[,;:]| \(|\.(?:\s|$))`)

// defaultOf returns the default that the schema or its words tell.
func defaultOf(s *schema) string {
	if s.Default != nil {
		return fmt.Sprint(s.Default)
	}
	if m := defaultWords.FindStringSubmatch(s.Description); m != nil {
		return m[1]
	}
	return ""
}

// exampleOf returns the first example that s or a part of it has.
func exampleOf(s *schema) string {
	if len(s.Examples) > 0 {
		return fmt.Sprint(s.Examples[0])
	}
	for _, one := range s.OneOf {
		if len(one.Examples) > 0 && one.Type == "string" {
			return fmt.Sprint(one.Examples[0])
		}
	}
	return ""
}

func texts(values []any) []string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// spell puts the key in place of the Go name with which a comment begins: "OnError is what
// becomes" is "onError is what becomes" for those who write YAML.
func spell(text, name string) string {
	word, rest, ok := strings.Cut(text, " ")
	if !ok || word == "" || !unicode.IsUpper(rune(word[0])) {
		return text
	}
	return name + " " + rest
}

// join puts what a key means before what its type or its entries mean.
func join(key, of string) string { return strings.TrimSpace(key + " " + of) }

// list joins two names or more: a, b and c.
func list(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
