package main

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = "operators.hanse.test/finish"

// kit is what every operator works with.
type kit struct {
	client.Client
	// direct asks the server, not the cache.
	direct   client.Reader
	recorder events.EventRecorder
	name     string
	// namespace is the operator's own.
	namespace string
}

func newKit(manager ctrl.Manager, name string) *kit {
	return &kit{Client: manager.GetClient(), direct: manager.GetAPIReader(), recorder: manager.GetEventRecorder(name), name: name,
		namespace: os.Getenv("POD_NAMESPACE")}
}

// outcome is what the status of a custom resource says.
type outcome struct {
	// missing is why it is not ready.
	missing string
	fields  map[string]any
	// again is when to look without having heard of anything.
	again time.Duration
}

type reconciler struct {
	operator
	kit *kit
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	resource := newResource(r.kind)
	if err := r.kit.Get(ctx, request.NamespacedName, resource); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if resource.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, r.end(ctx, resource)
	}
	if r.finish != nil && controllerutil.AddFinalizer(resource, finalizer) {
		// The change of it is heard of.
		return ctrl.Result{}, quiet(r.kit.Update(ctx, resource))
	}
	outcome, err := r.keep(ctx, r.kit, resource.DeepCopy())
	if err != nil {
		return ctrl.Result{}, quiet(err)
	}
	return ctrl.Result{RequeueAfter: outcome.again}, quiet(r.kit.tell(ctx, resource, outcome))
}

func (r *reconciler) end(ctx context.Context, resource *unstructured.Unstructured) error {
	if r.finish == nil || !controllerutil.ContainsFinalizer(resource, finalizer) {
		return nil
	}
	done, err := r.finish(ctx, r.kit, resource)
	if err != nil || !done {
		return quiet(err)
	}
	before := resource.DeepCopy()
	controllerutil.RemoveFinalizer(resource, finalizer)
	return client.IgnoreNotFound(r.kit.Patch(ctx, resource, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// quiet: who lost a race is called again by the winner's change.
func quiet(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// tell writes the status, if it says something new.
func (k *kit) tell(ctx context.Context, resource *unstructured.Unstructured, outcome outcome) error {
	condition := map[string]any{"type": "Ready", "status": "True", "reason": "Done", "message": "all is there"}
	if outcome.missing != "" {
		condition = map[string]any{"type": "Ready", "status": "False", "reason": "Waiting", "message": outcome.missing}
	}
	status := map[string]any{"observedGeneration": resource.GetGeneration(), "conditions": []any{condition}}
	for key, value := range outcome.fields {
		status[key] = value
	}
	before := resource.DeepCopy()
	resource.Object["status"] = status
	if apiequality.Semantic.DeepEqual(before.Object["status"], resource.Object["status"]) {
		return nil
	}
	return k.Status().Update(ctx, resource)
}

// meta is that of something made for a resource; what it is called ends in `role`.
func (k *kit) meta(resource *unstructured.Unstructured, role string) metav1.ObjectMeta {
	name := resource.GetName()
	if role != "" {
		name += "-" + role
	}
	return metav1.ObjectMeta{Namespace: resource.GetNamespace(), Name: name, Labels: k.labels(resource, role)}
}

func (k *kit) labels(resource *unstructured.Unstructured, role string) map[string]string {
	labels := map[string]string{"app.kubernetes.io/managed-by": k.name, "app.kubernetes.io/instance": resource.GetName()}
	if role != "" {
		labels["app.kubernetes.io/component"] = role
	}
	return labels
}

// ensure makes an object that the resource owns, or changes it.
func (k *kit) ensure(ctx context.Context, resource *unstructured.Unstructured, object client.Object, change func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, k.Client, object, func() error {
		change()
		return controllerutil.SetControllerReference(resource, object, k.Scheme())
	})
	return err
}

// once makes an object that the resource owns, unless there is one.
func (k *kit) once(ctx context.Context, resource *unstructured.Unstructured, object client.Object) error {
	err := k.Get(ctx, client.ObjectKeyFromObject(object), object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := controllerutil.SetControllerReference(resource, object, k.Scheme()); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(k.Create(ctx, object))
}

// template is that of pods with one container.
func template(labels map[string]string, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: "main", Image: image, Ports: []corev1.ContainerPort{{Name: "main", ContainerPort: 8080}}}},
		},
	}
}

func text(resource *unstructured.Unstructured, fields ...string) string {
	found, _, _ := unstructured.NestedString(resource.Object, fields...)
	return found
}

func number(resource *unstructured.Unstructured, fields ...string) int32 {
	found, _, _ := unstructured.NestedInt64(resource.Object, fields...)
	return int32(found)
}
