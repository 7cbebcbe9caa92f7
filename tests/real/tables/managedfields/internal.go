package internal

import (
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/record"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// describe says how a manager is set up; nil if it is not as the API server has it.
func (f *FieldManager) describe() map[string]any {
	call := map[string]any{"subresource": f.subresource}
	next := f.fieldManager
	for {
		switch m := next.(type) {
		case *versionCheckManager:
			call["apiVersion"], call["kind"] = m.gvk.GroupVersion().String(), m.gvk.Kind
			next = m.fieldManager
		case *lastAppliedUpdater:
			next = m.fieldManager
		case *lastAppliedManager:
			next = m.fieldManager
		case *skipNonAppliedManager:
			if m.probability != 1 {
				return nil
			}
			next = m.fieldManager
		case *capManagersManager:
			if m.maxUpdateManagers != DefaultMaxUpdateManagers {
				return nil
			}
			next = m.fieldManager
		case *buildManagerInfoManager:
			next = m.fieldManager
		case *managedFieldsUpdater:
			next = m.fieldManager
		case *stripMetaManager:
			next = m.fieldManager
		case *structuredMergeManager:
			filters, ok := m.updater.RecordedFilters()
			kind, isText := call["kind"].(string)
			if !ok || !isText || !describeType(call, m.typeConverter, m.groupVersion.WithKind(kind)) {
				return nil
			}
			call["filters"] = filters
			return call
		default:
			return nil
		}
	}
}

func describeType(call map[string]any, converter TypeConverter, gvk schema.GroupVersionKind) bool {
	var t *typed.ParseableType
	switch converter := converter.(type) {
	case *typeConverter:
		t = converter.parser[gvk]
	case deducedTypeConverter:
		t = &typed.DeducedParseableType
	}
	if t == nil {
		return false
	}
	call["schema"], call["type"] = record.Schema(t.Schema), record.Type(t.TypeRef)
	return true
}

func objectOf(obj runtime.Object) any {
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil {
		return record.JSON(u.Object)
	}
	return nil
}

// recordWrite records a write unless a second ended in it: then there is no saying which times are of now.
func (f *FieldManager) recordWrite(name string, live, other runtime.Object, manager string, force bool, run func() (runtime.Object, error)) (runtime.Object, error) {
	_, leave := record.Enter()
	before, given, begun := objectOf(live), objectOf(other), time.Now()
	out, err := run()
	ended := time.Now()
	leave(func() map[string]any {
		if begun.Unix() != ended.Unix() || before == nil || given == nil {
			return nil
		}
		call := f.describe()
		if call == nil {
			return nil
		}
		call["call"], call["live"], call["other"], call["manager"], call["force"] = name, before, given, manager, force
		call["now"] = ended.UTC().Format(time.RFC3339)
		call["error"] = record.Error(err)
		if status, ok := err.(*errors.StatusError); ok {
			call["status"] = record.JSON(status.ErrStatus)
		}
		if err == nil {
			call["result"] = objectOf(out)
		}
		return call
	})
	return out, err
}

func (f *FieldManager) Update(liveObj, newObj runtime.Object, manager string) (runtime.Object, error) {
	return f.recordWrite("trackUpdate", liveObj, newObj, manager, true, func() (runtime.Object, error) {
		return f.updateUnrecorded(liveObj, newObj, manager)
	})
}

func (f *FieldManager) Apply(liveObj, appliedObj runtime.Object, manager string, force bool) (runtime.Object, error) {
	return f.recordWrite("serverSideApply", liveObj, appliedObj, manager, force, func() (runtime.Object, error) {
		return f.applyUnrecorded(liveObj, appliedObj, manager, force)
	})
}

func entriesOf(managed ManagedInterface) any {
	entries, err := encodeManagedFields(managed)
	if err != nil {
		return nil
	}
	return record.JSON(entries)
}

func DecodeManagedFields(encodedManagedFields []metav1.ManagedFieldsEntry) (ManagedInterface, error) {
	_, leave := record.Enter()
	out, err := decodeManagedFieldsUnrecorded(encodedManagedFields)
	leave(func() map[string]any {
		call := map[string]any{
			"call": "decodeManagedFields", "entries": record.JSON(encodedManagedFields), "error": record.Error(err),
		}
		if err == nil {
			call["result"] = entriesOf(out)
		}
		return call
	})
	return out, err
}

func sortEncodedManagedFields(encodedManagedFields []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	_, leave := record.Enter()
	before := record.JSON(encodedManagedFields)
	out, err := sortEncodedManagedFieldsUnrecorded(encodedManagedFields)
	leave(func() map[string]any {
		return map[string]any{"call": "sortManagedFields", "entries": before, "result": record.JSON(out)}
	})
	return out, err
}

func NewConflictError(conflicts merge.Conflicts) *errors.StatusError {
	_, leave := record.Enter()
	out := newConflictErrorUnrecorded(conflicts)
	leave(func() map[string]any {
		list := []any{}
		for _, conflict := range conflicts {
			path := []any{}
			for _, element := range conflict.Path {
				text, err := fieldpath.SerializePathElement(element)
				if err != nil {
					return nil
				}
				path = append(path, text)
			}
			list = append(list, map[string]any{"manager": conflict.Manager, "path": path})
		}
		return map[string]any{"call": "conflictError", "conflicts": list, "result": record.JSON(out.ErrStatus)}
	})
	return out
}

// Tests cap at less than the API server does, so that the write itself is not recorded.
func (f *capManagersManager) capUpdateManagers(managed Managed) (Managed, error) {
	_, leave := record.Enter()
	before := entriesOf(managed)
	out, err := f.capUpdateManagersUnrecorded(managed)
	if err == nil && f.maxUpdateManagers != DefaultMaxUpdateManagers {
		record.Write(map[string]any{
			"call": "capManagers", "max": f.maxUpdateManagers, "entries": before, "result": entriesOf(out),
		})
	}
	leave(func() map[string]any { return nil })
	return out, err
}
