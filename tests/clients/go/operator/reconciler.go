package main

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = "clients.hanse.test/shop"

// reconciler keeps, for each Shop, a ConfigMap by get and update and a Deployment by server-side apply.
type reconciler struct {
	client.Client
	events events.EventRecorder
}

func (r *reconciler) install(manager ctrl.Manager) error {
	again := true
	return ctrl.NewControllerManagedBy(manager).For(&Shop{}).Owns(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{SkipNameValidation: &again}).Complete(r)
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	shop := &Shop{}
	if err := r.Get(ctx, request.NamespacedName, shop); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !shop.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.close(ctx, shop)
	}
	if controllerutil.AddFinalizer(shop, finalizer) {
		// The update wakes this loop again.
		return ctrl.Result{}, ignoreConflict(r.Update(ctx, shop))
	}
	if err := r.keepConfigMap(ctx, shop); err != nil {
		return ctrl.Result{}, ignoreConflict(err)
	}
	if err := r.keepDeployment(ctx, shop); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.keepStatus(ctx, shop)
}

// A conflict says that the cache is behind; the event that brings it up to date wakes the loop.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (r *reconciler) keepConfigMap(ctx context.Context, shop *Shop) error {
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shop.Name, Namespace: shop.Namespace}}
	outcome, err := controllerutil.CreateOrUpdate(ctx, r.Client, kept, func() error {
		kept.Labels = map[string]string{"shop": shop.Name}
		kept.Data = map[string]string{"colour": shop.Spec.Colour, "items": strconv.Itoa(len(shop.Spec.Items))}
		return controllerutil.SetControllerReference(shop, kept, r.Scheme())
	})
	if err == nil && outcome == controllerutil.OperationResultCreated {
		r.events.Eventf(shop, kept, corev1.EventTypeNormal, "Opened", "Create", "made ConfigMap %s", kept.Name)
	}
	return err
}

func (r *reconciler) keepDeployment(ctx context.Context, shop *Shop) error {
	labels := map[string]string{"shop": shop.Name}
	wanted := appsapply.Deployment(shop.Name, shop.Namespace).WithLabels(labels).
		WithOwnerReferences(metaapply.OwnerReference().WithAPIVersion(shopVersion.String()).WithKind("Shop").
			WithName(shop.Name).WithUID(shop.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(appsapply.DeploymentSpec().WithReplicas(shop.Spec.Replicas).
			WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().
				WithContainers(coreapply.Container().WithName("shop").WithImage("example.com/shop:" + shop.Spec.Colour)))))
	return r.Apply(ctx, wanted, client.FieldOwner("shop-operator"), client.ForceOwnership)
}

func (r *reconciler) keepStatus(ctx context.Context, shop *Shop) error {
	before := shop.DeepCopyObject().(*Shop)
	shop.Status.ObservedGeneration = shop.Generation
	shop.Status.Replicas = shop.Spec.Replicas
	shop.Status.Selector = "shop=" + shop.Name
	apimeta.SetStatusCondition(&shop.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Open", ObservedGeneration: shop.Generation})
	return r.Status().Patch(ctx, shop, client.MergeFrom(before))
}

// close leaves a note and lets the Shop go.
func (r *reconciler) close(ctx context.Context, shop *Shop) error {
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shop.Name + "-closed", Namespace: shop.Namespace}}
	if err := r.Create(ctx, note); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if controllerutil.RemoveFinalizer(shop, finalizer) {
		return client.IgnoreNotFound(ignoreConflict(r.Update(ctx, shop)))
	}
	return nil
}
