package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

// A group of its own for every run: an earlier one may have been interrupted.
var shopVersion = schema.GroupVersion{Group: check.Unique("clients") + ".hanse.test", Version: "v1"}

// Shop is what the operator looks after.
type Shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ShopSpec   `json:"spec"`
	Status            ShopStatus `json:"status,omitempty"`
}

// ShopSpec is what is wanted.
type ShopSpec struct {
	Replicas int32  `json:"replicas"`
	Colour   string `json:"colour,omitempty"`
	Items    []Item `json:"items,omitempty"`
}

// Item is known by its name.
type Item struct {
	Name  string `json:"name"`
	Price int32  `json:"price,omitempty"`
}

// ShopStatus is what the operator has seen.
type ShopStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int32              `json:"replicas,omitempty"`
	Selector           string             `json:"selector,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// ShopList is a list of them.
type ShopList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Shop `json:"items"`
}

// DeepCopyObject copies all of it.
func (s *Shop) DeepCopyObject() runtime.Object {
	copied := *s
	copied.ObjectMeta = *s.ObjectMeta.DeepCopy()
	copied.Spec.Items = append([]Item(nil), s.Spec.Items...)
	copied.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	return &copied
}

// DeepCopyObject copies all of it.
func (l *ShopList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.ListMeta = *l.ListMeta.DeepCopy()
	copied.Items = make([]Shop, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopyObject().(*Shop)
	}
	return &copied
}

func addShops(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(shopVersion, &Shop{}, &ShopList{})
	metav1.AddToGroupVersion(scheme, shopVersion)
}

type property = apiextensionsv1.JSONSchemaProps

func object(properties map[string]property, required ...string) property {
	return property{Type: "object", Properties: properties, Required: required}
}

// mapList is a list whose entries are known by one of their fields.
func mapList(key string, entry property) property {
	return property{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &entry},
		XListType: ptr.To("map"), XListMapKeys: []string{key}}
}

func shopSchema() *property {
	text, integer := property{Type: "string"}, property{Type: "integer", Format: "int32"}
	replicas := integer
	replicas.Minimum = ptr.To(0.0)
	colour := text
	colour.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"red"`)}, {Raw: []byte(`"blue"`)}}
	colour.Default = &apiextensionsv1.JSON{Raw: []byte(`"red"`)}
	price := integer
	price.Default = &apiextensionsv1.JSON{Raw: []byte(`1`)}
	spec := object(map[string]property{"replicas": replicas, "colour": colour,
		"items": mapList("name", object(map[string]property{"name": text, "price": price}, "name"))}, "replicas")
	spec.XValidations = apiextensionsv1.ValidationRules{{
		Rule: "self.colour != 'blue' || self.replicas <= 10", Message: "a blue shop has at most ten replicas"}}
	condition := object(map[string]property{"type": text, "status": text, "reason": text, "message": text,
		"observedGeneration": {Type: "integer", Format: "int64"}, "lastTransitionTime": {Type: "string", Format: "date-time"}}, "type", "status")
	status := object(map[string]property{"observedGeneration": {Type: "integer", Format: "int64"}, "replicas": integer,
		"selector": text, "conditions": mapList("type", condition)})
	all := object(map[string]property{"apiVersion": text, "kind": text, "metadata": {Type: "object"}, "spec": spec, "status": status}, "spec")
	return &all
}

func shopDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "shops." + shopVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: shopVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shops", Singular: "shop", Kind: "Shop", ListKind: "ShopList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: shopVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: shopSchema()},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas",
						StatusReplicasPath: ".status.replicas", LabelSelectorPath: ptr.To(".status.selector")}},
				SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.colour"}},
			}},
		},
	}
}
