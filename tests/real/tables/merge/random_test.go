package merge_test

import (
	"fmt"
	"math/rand"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Objects that hold themselves in every way that there is.
var selfSimilar = func() typed.ParseableType {
	parser, err := typed.NewParser(`types:
- name: object
  map:
    fields:
    - name: name
      type: {scalar: string}
    - name: number
      type: {scalar: numeric}
    - name: child
      type: {namedType: object}
    - name: whole
      type: {namedType: object, elementRelationship: atomic}
    - name: any
      type: {namedType: __untyped_deduced_}
    - name: keyed
      type:
        list: {elementType: {namedType: object}, elementRelationship: associative, keys: [name]}
    - name: set
      type:
        list: {elementType: {scalar: string}, elementRelationship: associative}
    - name: list
      type:
        list: {elementType: {namedType: object}, elementRelationship: atomic}
    - name: labels
      type:
        map: {elementType: {scalar: string}}
    - name: objects
      type:
        map: {elementType: {namedType: object}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`)
	if err != nil {
		panic(err)
	}
	return parser.Type("object")
}()

func randomObject(random *rand.Rand, depth int, duplicates bool) map[string]any {
	object := map[string]any{}
	if random.Intn(2) == 0 {
		object["number"] = random.Intn(2)
	}
	if depth == 0 {
		return object
	}
	children := func() []any {
		list := []any{}
		for range random.Intn(4) {
			list = append(list, randomObject(random, depth-1, duplicates))
		}
		return list
	}
	for _, name := range []string{"keyed", "set", "labels", "objects", "list", "whole", "child", "any"} {
		if random.Intn(3) > 0 {
			continue
		}
		if random.Intn(12) == 0 {
			object[name] = nil
			continue
		}
		switch name {
		case "keyed":
			list, seen := []any{}, map[string]bool{}
			for _, child := range children() {
				key := string("xyz"[random.Intn(3)])
				if !seen[key] || duplicates {
					child.(map[string]any)["name"] = key
					list = append(list, child)
				}
				seen[key] = true
			}
			object[name] = list
		case "set":
			list := []any{}
			for _, at := range random.Perm(4)[:random.Intn(4)] {
				list = append(list, string("pqrs"[at]))
			}
			if duplicates && len(list) > 0 && random.Intn(3) == 0 {
				list = append(list, list[0])
			}
			object[name] = list
		case "list":
			object[name] = children()
		case "labels", "objects":
			members := map[string]any{}
			for at := range random.Intn(3) {
				if name == "labels" {
					members[fmt.Sprint("l", at)] = fmt.Sprint(random.Intn(2))
				} else {
					members[fmt.Sprint("o", at)] = randomObject(random, depth-1, duplicates)
				}
			}
			object[name] = members
		case "any":
			anything := []any{"text", 1, true, children(), randomObject(random, depth-1, duplicates)}
			object[name] = anything[random.Intn(len(anything))]
		default:
			object[name] = randomObject(random, depth-1, duplicates)
		}
	}
	return object
}

// TestRandomHistories writes to objects at random. It finds nothing wrong itself; what happened is recorded.
func TestRandomHistories(t *testing.T) {
	for seed := range 400 {
		random := rand.New(rand.NewSource(int64(seed)))
		updater := (&merge.UpdaterBuilder{Converter: sameInAll{}}).BuildUpdater()
		if random.Intn(4) == 0 {
			ignored := fieldpath.NewSet(fieldpath.MakePathOrDie("child"), fieldpath.MakePathOrDie("labels", "l0"))
			updater.IgnoreFilter = map[fieldpath.APIVersion]fieldpath.Filter{"v1": fieldpath.NewExcludeSetFilter(ignored)}
		}
		live, err := selfSimilar.FromUnstructured(map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		managers := fieldpath.ManagedFields{}
		for range 6 {
			isUpdate := random.Intn(3) == 0
			options := []typed.ValidationOptions{}
			if isUpdate {
				options = append(options, typed.AllowDuplicates)
			}
			other, err := selfSimilar.FromUnstructured(randomObject(random, 3, isUpdate), options...)
			if err != nil {
				t.Fatal(err)
			}
			manager := string("abc"[random.Intn(3)])
			if isUpdate {
				object, after, err := updater.Update(live, other, "v1", managers.Copy(), "u"+manager)
				if err == nil {
					live, managers = object, after
				}
				continue
			}
			object, after, err := updater.Apply(live, other, "v1", managers.Copy(), manager, random.Intn(2) == 0)
			if err == nil {
				managers = after
				if object != nil {
					live = object
				}
			}
		}
	}
}

// sameInAll does not convert.
type sameInAll struct{}

func (sameInAll) Convert(object *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) {
	return object, nil
}

func (sameInAll) IsMissingVersionError(error) bool { return false }
