package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hanse.test/clients/check"
)

func (w *world) checkShops(suite *check.Suite) {
	suite.Run("a Shop is reconciled", w.created)
	suite.Run("a change of a Shop is followed", func(t *check.T) {
		w.changed(t, "main", func(shop *Shop) { shop.Spec.Replicas = 3 })
		shop := w.reconciled(t, "main")
		t.Want(shop.Generation == 2, "generation 2, not %d", shop.Generation)
		t.Want(*w.deployment(t, "main").Spec.Replicas == 3, "three replicas")
	})
	suite.Run("an owned object comes back", w.comesBack)
	suite.Run("an owned object is corrected", w.corrected)
	suite.Run("an owned object keeps what others applied", w.shared)
	suite.Run("an event is recorded", w.recorded)
	suite.Run("the cache has an index and a filter", w.cached)
	suite.Run("a Shop is scaled", w.scaled)
	suite.Run("an invalid Shop is refused", w.invalid)
	suite.Run("a rule across fields is enforced", func(t *check.T) {
		err := w.client.Create(t.Context(), w.shop("ruled", ShopSpec{Replicas: 11, Colour: "blue"}))
		t.Refused(err, apierrors.IsInvalid, "create")
	})
	suite.Run("unknown fields are pruned", w.pruned)
	suite.Run("a Shop is applied by two managers", w.applied)
	suite.Run("Shops are selected by field", w.selected)
}

func (w *world) shop(name string, spec ShopSpec) *Shop {
	return &Shop{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}, Spec: spec}
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: name}
}

// reconciled waits until the operator has seen the newest generation.
func (w *world) reconciled(t *check.T, name string) *Shop {
	shop := &Shop{}
	t.Eventually("Shop "+name, func() error {
		if err := w.client.Get(t.Context(), w.key(name), shop); err != nil {
			return err
		}
		if shop.Status.ObservedGeneration != shop.Generation || !apimeta.IsStatusConditionTrue(shop.Status.Conditions, "Ready") {
			return fmt.Errorf("generation %d, status %v", shop.Generation, shop.Status)
		}
		return nil
	})
	return shop
}

func (w *world) changed(t *check.T, name string, change func(*Shop)) {
	t.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		shop := &Shop{}
		if err := w.client.Get(t.Context(), w.key(name), shop); err != nil {
			return err
		}
		change(shop)
		return w.client.Update(t.Context(), shop)
	}), "change Shop %s", name)
}

func (w *world) deployment(t *check.T, name string) *appsv1.Deployment {
	found := &appsv1.Deployment{}
	t.Must(w.client.Get(t.Context(), w.key(name), found), "get Deployment %s", name)
	return found
}

func (w *world) created(t *check.T) {
	wanted := w.shop("main", ShopSpec{Replicas: 2, Items: []Item{{Name: "tea"}}})
	wanted.Status.Replicas = 99
	t.Must(w.client.Create(t.Context(), wanted), "create")
	t.Want(wanted.Spec.Colour == "red" && wanted.Spec.Items[0].Price == 1, "defaults, not %v", wanted.Spec)
	t.Want(wanted.Status.Replicas == 0, "no status from a create")
	t.Want(wanted.Generation == 1, "generation 1, not %d", wanted.Generation)
	shop := w.reconciled(t, "main")
	t.Want(shop.Generation == 1, "the generation unchanged by the finalizer and the status, not %d", shop.Generation)
	t.Want(len(shop.Finalizers) == 1, "the finalizer")
	kept := &corev1.ConfigMap{}
	t.Must(w.client.Get(t.Context(), w.key("main"), kept), "get the ConfigMap")
	t.Want(kept.Data["colour"] == "red" && metav1.IsControlledBy(kept, shop), "an owned ConfigMap, not %v", kept)
	found := w.deployment(t, "main")
	t.Want(*found.Spec.Replicas == 2 && metav1.IsControlledBy(found, shop), "an owned Deployment")
	t.Want(found.ManagedFields[0].Manager == "shop-operator", "the operator as its manager")
}

func (w *world) comesBack(t *check.T) {
	kept := &corev1.ConfigMap{}
	t.Must(w.client.Get(t.Context(), w.key("main"), kept), "get")
	before := kept.UID
	t.Must(w.client.Delete(t.Context(), kept), "delete")
	t.Eventually("another ConfigMap", func() error {
		if err := w.client.Get(t.Context(), w.key("main"), kept); err != nil {
			return err
		}
		if kept.UID == before {
			return fmt.Errorf("is the old one")
		}
		return nil
	})
}

func (w *world) corrected(t *check.T) {
	found := w.deployment(t, "main")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`))
	t.Must(w.client.Patch(t.Context(), found, patch, client.FieldOwner("somebody")), "meddle")
	t.Want(*found.Spec.Replicas == 7, "seven replicas")
	t.Eventually("the Deployment", func() error {
		if found := w.deployment(t, "main"); *found.Spec.Replicas != 3 {
			return fmt.Errorf("has %d replicas", *found.Spec.Replicas)
		}
		return nil
	})
}

func (w *world) shared(t *check.T) {
	extra := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "main", "namespace": w.namespace, "annotations": map[string]any{"note": "kept"}},
	}}
	t.Must(w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(extra), client.FieldOwner("somebody-else")), "apply")
	w.changed(t, "main", func(shop *Shop) { shop.Spec.Replicas = 4 })
	w.reconciled(t, "main")
	found := w.deployment(t, "main")
	t.Want(found.Annotations["note"] == "kept" && *found.Spec.Replicas == 4, "both parts, not %v", found.Annotations)
}

func (w *world) recorded(t *check.T) {
	t.Eventually("the event", func() error {
		list := &eventsv1.EventList{}
		if err := w.client.List(t.Context(), list, client.InNamespace(w.namespace), client.MatchingFields{"reason": "Opened"}); err != nil {
			return err
		}
		if len(list.Items) == 0 || list.Items[0].Regarding.Kind != "Shop" {
			return fmt.Errorf("not among %d", len(list.Items))
		}
		return nil
	})
}

func (w *world) cached(t *check.T) {
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: w.namespace}, Data: map[string]string{"colour": "red"}}
	t.Must(w.client.Create(t.Context(), stranger), "create a ConfigMap without the label")
	t.Eventually("the cache", func() error {
		list := &corev1.ConfigMapList{}
		if err := w.first.GetClient().List(t.Context(), list, client.MatchingFields{"data.colour": "red"}); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Name != "main" {
			return fmt.Errorf("has %d of that colour", len(list.Items))
		}
		return nil
	})
	err := w.first.GetClient().Get(t.Context(), client.ObjectKeyFromObject(stranger), &corev1.ConfigMap{})
	t.Refused(err, apierrors.IsNotFound, "get what the cache leaves out")
	t.Must(w.first.GetAPIReader().Get(t.Context(), client.ObjectKeyFromObject(stranger), stranger), "get it past the cache")
}

func (w *world) scaled(t *check.T) {
	shop, scale := w.shop("main", ShopSpec{}), &autoscalingv1.Scale{}
	t.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.client.SubResource("scale").Get(t.Context(), shop, scale); err != nil {
			return err
		}
		scale.Spec.Replicas = 6
		return w.client.SubResource("scale").Update(t.Context(), shop, client.WithSubResourceBody(scale))
	}), "scale")
	t.Want(scale.Status.Selector == "shop=main", "the selector, not %q", scale.Status.Selector)
	t.Want(w.reconciled(t, "main").Spec.Replicas == 6, "six replicas wanted")
	t.Want(*w.deployment(t, "main").Spec.Replicas == 6, "six replicas")
}

func (w *world) invalid(t *check.T) {
	for field, spec := range map[string]ShopSpec{
		"spec.colour":   {Replicas: 1, Colour: "green"},
		"spec.replicas": {Replicas: -1},
		"spec.items[1]": {Items: []Item{{Name: "tea"}, {Name: "tea"}}},
	} {
		err := w.client.Create(t.Context(), w.shop("invalid", spec))
		t.Refused(err, apierrors.IsInvalid, "create one with a bad %s", field)
		causes := err.(*apierrors.StatusError).ErrStatus.Details.Causes
		t.Want(len(causes) > 0 && causes[0].Field == field, "%s as cause, not %v", field, causes)
	}
}

func (w *world) pruned(t *check.T) {
	loose := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "loose", "namespace": w.namespace},
		"spec":     map[string]any{"replicas": int64(1), "unknown": "field"},
	}}
	loose.SetGroupVersionKind(shopVersion.WithKind("Shop"))
	strict := client.WithFieldValidation(w.client, metav1.FieldValidationStrict)
	t.Refused(strict.Create(t.Context(), loose.DeepCopy()), apierrors.IsBadRequest, "create strictly")
	t.Must(w.client.Create(t.Context(), loose), "create")
	_, found, _ := unstructured.NestedString(loose.Object, "spec", "unknown")
	t.Want(!found, "the unknown field gone")
}

func (w *world) applied(t *check.T) {
	apply := func(manager string, items ...any) error {
		part := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "applied", "namespace": w.namespace},
			"spec":     map[string]any{"replicas": int64(1), "items": items},
		}}
		part.SetGroupVersionKind(shopVersion.WithKind("Shop"))
		return w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(part), client.FieldOwner(manager))
	}
	item := func(name string, price int64) any { return map[string]any{"name": name, "price": price} }
	t.Must(apply("one", item("tea", 2)), "apply one part")
	t.Must(apply("two", item("coffee", 3)), "apply another part")
	t.Refused(apply("two", item("tea", 4)), apierrors.IsConflict, "apply the other's item")
	shop := &Shop{}
	t.Must(w.client.Get(t.Context(), w.key("applied"), shop), "get")
	t.Want(len(shop.Spec.Items) == 2, "both items, not %v", shop.Spec.Items)
	t.Must(apply("one"), "give up one part")
	t.Must(w.client.Get(t.Context(), w.key("applied"), shop), "get")
	t.Want(len(shop.Spec.Items) == 1 && shop.Spec.Items[0].Name == "coffee", "the other part, not %v", shop.Spec.Items)
}

func (w *world) selected(t *check.T) {
	t.Must(w.client.Create(t.Context(), w.shop("blue", ShopSpec{Replicas: 1, Colour: "blue"})), "create")
	list := &ShopList{}
	t.Must(w.client.List(t.Context(), list, client.InNamespace(w.namespace), client.MatchingFields{"spec.colour": "blue"}), "list")
	t.Want(len(list.Items) == 1 && list.Items[0].Name == "blue", "the blue one, not %d", len(list.Items))
}

func (w *world) finalize(t *check.T) {
	shops := &ShopList{}
	t.Must(w.client.List(t.Context(), shops, client.InNamespace(w.namespace)), "list")
	for i := range shops.Items {
		t.Must(w.client.Delete(t.Context(), &shops.Items[i]), "delete %s", shops.Items[i].Name)
	}
	for i := range shops.Items {
		w.gone(t, &shops.Items[i])
	}
	t.Must(w.client.Get(t.Context(), w.key("main-closed"), &corev1.ConfigMap{}), "get the note that it was closed")
	w.gone(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: w.namespace}})
	w.gone(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: w.namespace}})
}
