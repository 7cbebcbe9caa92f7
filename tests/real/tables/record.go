// Package record writes down calls and what they returned: one JSON object on each line of a file for each process.
//
// Only outermost calls are recorded: what a recorded function calls itself is not.
package record

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Many calls of one function look much the same.
const maxPerFunction = 6000

var (
	lock    sync.Mutex
	depth   int
	file    *os.File
	counts  = map[string]int{}
	schemas = map[string]int{}
	// Large schemas are used for many calls.
	numbers = map[*schema.Schema]int{}
)

// Enter begins a call. The function that it returns ends it, and writes what `describe` says if it was an outermost
// one.
func Enter() (outermost bool, leave func(describe func() map[string]any)) {
	lock.Lock()
	defer lock.Unlock()
	depth++
	outermost = depth == 1
	return outermost, func(describe func() map[string]any) {
		// What it calls is not recorded, and must not wait for itself.
		var call map[string]any
		if outermost {
			call = describe()
		}
		lock.Lock()
		defer lock.Unlock()
		if call != nil {
			write(call)
		}
		depth--
	}
}

func write(call map[string]any) {
	name := call["call"].(string)
	if counts[name]++; counts[name] > maxPerFunction && name != "schema" {
		return
	}
	if file == nil {
		path := filepath.Join(os.Getenv("RECORD_INTO"), fmt.Sprintf("%s-%d.jsonl", os.Getenv("RECORD_AS"), os.Getpid()))
		var err error
		if file, err = os.Create(path); err != nil {
			panic(err)
		}
	}
	line, err := json.Marshal(call)
	if err != nil {
		// A value that JSON cannot hold.
		return
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// Write writes a call down, outermost or not.
func Write(call map[string]any) {
	lock.Lock()
	defer lock.Unlock()
	write(call)
}

// Error is an error's text.
func Error(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

// JSON is what encoding/json makes of a value.
func JSON(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return json.RawMessage(text)
}

// Value is a value as JSON has it.
func Value(v value.Value) any {
	if v == nil {
		return nil
	}
	return plain(v.Unstructured())
}

func plain(v any) any {
	switch v := v.(type) {
	case map[any]any:
		out := map[string]any{}
		for key, member := range v {
			out[fmt.Sprint(key)] = plain(member)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, member := range v {
			out[key] = plain(member)
		}
		return out
	case []any:
		out := []any{}
		for _, item := range v {
			out = append(out, plain(item))
		}
		return out
	case float64:
		// So that it is read as a float again.
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return json.RawMessage(fmt.Sprintf("%.1f", v))
		}
	}
	return v
}

// Schema writes a schema once, and returns its number.
func Schema(s *schema.Schema) int {
	if id, ok := numbers[s]; ok {
		return id
	}
	types := map[string]any{}
	for _, t := range s.Types {
		types[t.Name] = atom(t.Atom)
	}
	text, err := json.Marshal(types)
	if err != nil {
		panic(err)
	}
	id, ok := schemas[string(text)]
	if !ok {
		id = len(schemas)
		schemas[string(text)] = id
		write(map[string]any{"call": "schema", "id": id, "types": types})
	}
	numbers[s] = id
	return id
}

// Type is a reference to a type.
func Type(ref schema.TypeRef) any {
	out := map[string]any{}
	if ref.NamedType != nil {
		out["named"] = *ref.NamedType
	} else if ref.Inlined != (schema.Atom{}) {
		out["inlined"] = atom(ref.Inlined)
	} else {
		return nil
	}
	if ref.ElementRelationship != nil {
		out["relationship"] = *ref.ElementRelationship
	}
	return out
}

func atom(a schema.Atom) any {
	out := map[string]any{}
	if a.Scalar != nil {
		out["scalar"] = *a.Scalar
	}
	if a.List != nil {
		out["list"] = map[string]any{
			"element":      Type(a.List.ElementType),
			"relationship": a.List.ElementRelationship,
			"keys":         a.List.Keys,
		}
	}
	if a.Map != nil {
		fields := []any{}
		for _, field := range a.Map.Fields {
			fields = append(fields, map[string]any{
				"name": field.Name, "type": Type(field.Type), "default": plain(field.Default),
			})
		}
		out["map"] = map[string]any{
			"element":      Type(a.Map.ElementType),
			"relationship": a.Map.ElementRelationship,
			"fields":       fields,
		}
	}
	return out
}
