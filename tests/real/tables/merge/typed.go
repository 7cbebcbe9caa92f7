package typed

import (
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/record"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

func describe(call string, tv *TypedValue, more map[string]any) map[string]any {
	more["call"] = call
	more["schema"] = record.Schema(tv.schema)
	more["type"] = record.Type(tv.typeRef)
	more["value"] = record.Value(tv.value)
	return more
}

func resultOf(tv *TypedValue, err error) any {
	if err != nil || tv == nil {
		return nil
	}
	return record.Value(tv.value)
}

func AsTyped(v value.Value, s *schema.Schema, typeRef schema.TypeRef, opts ...ValidationOptions) (*TypedValue, error) {
	_, leave := record.Enter()
	out, err := asTypedUnrecorded(v, s, typeRef, opts...)
	leave(func() map[string]any {
		tv := &TypedValue{value: v, schema: s, typeRef: typeRef}
		return describe("validate", tv, map[string]any{"duplicates": len(opts) > 0, "error": record.Error(err)})
	})
	return out, err
}

func (tv TypedValue) ToFieldSet() (*fieldpath.Set, error) {
	_, leave := record.Enter()
	out, err := tv.toFieldSetUnrecorded()
	leave(func() map[string]any {
		return describe("fieldSet", &tv, map[string]any{
			"error": record.Error(err), "result": fieldpath.Recorded(out),
		})
	})
	return out, err
}

func (tv TypedValue) Merge(pso *TypedValue) (*TypedValue, error) {
	_, leave := record.Enter()
	out, err := tv.mergeUnrecorded(pso)
	leave(func() map[string]any {
		return describe("merge", &tv, map[string]any{
			"over": record.Value(pso.value), "error": record.Error(err), "result": resultOf(out, err),
		})
	})
	return out, err
}

func (tv TypedValue) Compare(rhs *TypedValue) (*Comparison, error) {
	_, leave := record.Enter()
	out, err := tv.compareUnrecorded(rhs)
	leave(func() map[string]any {
		call := map[string]any{"with": record.Value(rhs.value), "error": record.Error(err)}
		if err == nil {
			call["added"] = fieldpath.Recorded(out.Added)
			call["modified"] = fieldpath.Recorded(out.Modified)
			call["removed"] = fieldpath.Recorded(out.Removed)
		}
		return describe("compare", &tv, call)
	})
	return out, err
}

func (tv TypedValue) RemoveItems(items *fieldpath.Set) *TypedValue {
	_, leave := record.Enter()
	out := tv.removeItemsUnrecorded(items)
	leave(func() map[string]any {
		return describe("remove", &tv, map[string]any{
			"set": fieldpath.Recorded(items), "result": resultOf(out, nil),
		})
	})
	return out
}

func (tv TypedValue) ExtractItems(items *fieldpath.Set, opts ...ExtractItemsOption) *TypedValue {
	_, leave := record.Enter()
	out := tv.extractItemsUnrecorded(items, opts...)
	leave(func() map[string]any {
		return describe("extract", &tv, map[string]any{
			"set": fieldpath.Recorded(items), "keys": len(opts) > 0, "result": resultOf(out, nil),
		})
	})
	return out
}

func ReconcileFieldSetWithSchema(fieldset *fieldpath.Set, tv *TypedValue) (*fieldpath.Set, error) {
	_, leave := record.Enter()
	out, err := reconcileFieldSetWithSchemaUnrecorded(fieldset, tv)
	leave(func() map[string]any {
		return describe("reconcile", tv, map[string]any{
			"set": fieldpath.Recorded(fieldset), "error": record.Error(err), "result": fieldpath.Recorded(out),
		})
	})
	return out, err
}
