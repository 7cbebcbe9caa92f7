package managedfields

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/record"
)

func (h *ScaleHandler) describe(name string, result []metav1.ManagedFieldsEntry, err error) map[string]any {
	mappings := map[string]any{}
	for version, path := range h.mappings {
		if path == nil {
			mappings[version] = nil
			continue
		}
		elements := []any{}
		for _, element := range path {
			text, err := fieldpath.SerializePathElement(element)
			if err != nil {
				return nil
			}
			elements = append(elements, text)
		}
		mappings[version] = elements
	}
	return map[string]any{
		"call": name, "parent": record.JSON(h.parentEntries), "apiVersion": h.groupVersion.String(),
		"mappings": mappings, "error": record.Error(err), "result": record.JSON(result),
	}
}

func (h *ScaleHandler) ToSubresource() ([]metav1.ManagedFieldsEntry, error) {
	_, leave := record.Enter()
	out, err := h.toSubresourceUnrecorded()
	leave(func() map[string]any { return h.describe("scaleFromParent", out, err) })
	return out, err
}

func (h *ScaleHandler) ToParent(scaleEntries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	_, leave := record.Enter()
	given := record.JSON(scaleEntries)
	out, err := h.toParentUnrecorded(scaleEntries)
	leave(func() map[string]any {
		call := h.describe("scaleToParent", out, err)
		if call != nil {
			call["scale"] = given
		}
		return call
	})
	return out, err
}
