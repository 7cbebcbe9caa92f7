package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var crewVersion = schema.GroupVersion{Group: "crews.hanse.test", Version: "v1"}

// Crew is what the operator looks after.
type Crew struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CrewSpec   `json:"spec"`
	Status            CrewStatus `json:"status,omitempty"`
}

// CrewSpec is what is wanted.
type CrewSpec struct {
	// Sailors are pods that the operator makes itself.
	Sailors int32 `json:"sailors"`
	// Cooks are pods of a StatefulSet.
	Cooks int32 `json:"cooks"`
	// Image has a shell.
	Image string `json:"image"`
}

// Sailor is a pod that does its work.
type Sailor struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	IP   string `json:"ip"`
	Node string `json:"node"`
}

// CrewStatus is what the operator has seen.
type CrewStatus struct {
	Sailors    []Sailor           `json:"sailors,omitempty"`
	Cooks      int32              `json:"cooks,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CrewList is a list of them.
type CrewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Crew `json:"items"`
}

// DeepCopyObject copies all of it.
func (c *Crew) DeepCopyObject() runtime.Object {
	copied := *c
	copied.ObjectMeta = *c.ObjectMeta.DeepCopy()
	copied.Status.Sailors = append([]Sailor(nil), c.Status.Sailors...)
	copied.Status.Conditions = append([]metav1.Condition(nil), c.Status.Conditions...)
	return &copied
}

// DeepCopyObject copies all of it.
func (l *CrewList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.ListMeta = *l.ListMeta.DeepCopy()
	copied.Items = make([]Crew, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopyObject().(*Crew)
	}
	return &copied
}

func addCrews(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(crewVersion, &Crew{}, &CrewList{})
	metav1.AddToGroupVersion(scheme, crewVersion)
	return nil
}

func crewDefinition() *apiextensionsv1.CustomResourceDefinition {
	anything := true
	loose := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "crews." + crewVersion.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crewVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "crews", Singular: "crew", Kind: "Crew", ListKind: "CrewList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: crewVersion.Version, Served: true, Storage: true,
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": loose, "status": loose}}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
