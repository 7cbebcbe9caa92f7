package strategicpatch

import (
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/record"
)

// table writes the types that a struct is made of in the form of the table of built-in types.
type table struct {
	seen map[reflect.Type]string
	text strings.Builder
}

func (t *table) message(of reflect.Type, name string) string {
	if name, ok := t.seen[of]; ok {
		return name
	}
	if of.Name() != "" {
		name = of.Name()
	}
	name = "test." + name
	t.seen[of] = name
	lines := []string{}
	for i := range of.NumField() {
		field := of.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if key == "" {
			key = field.Name
		}
		line := fmt.Sprintf("%s 0 %s o?", key, t.typeOf(field.Type, field.Name))
		if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
			line += " patch=" + strategy
		}
		if mergeKey := field.Tag.Get("patchMergeKey"); mergeKey != "" {
			line += " key=" + mergeKey
		}
		lines = append(lines, line)
	}
	t.text.WriteString(">" + name + "\n" + strings.Join(lines, "\n") + "\n")
	return name
}

func (t *table) typeOf(of reflect.Type, name string) string {
	switch of.Kind() {
	case reflect.Pointer:
		return "*" + t.typeOf(of.Elem(), name)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "[]byte"
		}
		return "[]" + t.typeOf(of.Elem(), name)
	case reflect.Map:
		return "map[string]" + t.typeOf(of.Elem(), name)
	case reflect.Struct:
		if of.Name() == "RawExtension" || of.Name() == "Time" {
			return of.Name()
		}
		return t.message(of, name)
	case reflect.Int, reflect.Int64:
		return "int64"
	case reflect.Float32, reflect.Float64:
		return "float64"
	case reflect.Interface:
		return "Any"
	}
	return of.Kind().String()
}

func StrategicMergeMapPatchUsingLookupPatchMeta(original, patch JSONMap, schema LookupPatchMeta) (JSONMap, error) {
	_, leave := record.Enter()
	// Both are changed on the way.
	before, given := record.JSON(original), record.JSON(patch)
	out, err := strategicMergeMapPatchUsingLookupPatchMetaUnrecorded(original, patch, schema)
	leave(func() map[string]any {
		structure, ok := schema.(PatchMetaFromStruct)
		if !ok || structure.T.Kind() != reflect.Struct {
			return nil
		}
		types := &table{seen: map[reflect.Type]string{}}
		name := types.message(structure.T, structure.T.Name())
		call := map[string]any{
			"call": "strategicMerge", "types": types.text.String(), "message": name,
			"original": before, "patch": given, "error": record.Error(err),
		}
		if err == nil {
			call["result"] = record.JSON(out)
		}
		return call
	})
	return out, err
}
