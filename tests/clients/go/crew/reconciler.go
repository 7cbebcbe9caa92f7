package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// reconciler keeps, for each Crew, pods without anything between, a StatefulSet with its Service, a Job and a Secret.
// It believes nothing but what it sees of them: addresses, nodes, phases, conditions.
type reconciler struct {
	client.Client
}

func (r *reconciler) install(manager ctrl.Manager) error {
	again := true
	return ctrl.NewControllerManagedBy(manager).For(&Crew{}).
		Owns(&corev1.Pod{}).Owns(&appsv1.StatefulSet{}).Owns(&corev1.Service{}).Owns(&batchv1.Job{}).Owns(&corev1.Secret{}).
		WithOptions(controller.Options{SkipNameValidation: &again}).Complete(r)
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	crew := &Crew{}
	if err := r.Get(ctx, request.NamespacedName, crew); err != nil || !crew.DeletionTimestamp.IsZero() {
		// What it owns goes after it.
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := crew.DeepCopyObject().(*Crew)
	missing, err := r.keepAll(ctx, crew)
	if err != nil {
		return ctrl.Result{}, err
	}
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Manned", ObservedGeneration: crew.Generation}
	if missing != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Waiting", missing
	}
	apimeta.SetStatusCondition(&crew.Status.Conditions, condition)
	return ctrl.Result{}, client.IgnoreNotFound(r.Status().Patch(ctx, crew, client.MergeFrom(before)))
}

// keepAll says what is still missing.
func (r *reconciler) keepAll(ctx context.Context, crew *Crew) (string, error) {
	crew.Status.Sailors = nil
	secret := &corev1.Secret{ObjectMeta: r.owned(crew, "key"), StringData: map[string]string{"of": crew.Name}}
	if err := r.make(ctx, crew, secret); err != nil {
		return "", err
	}
	if err := r.make(ctx, crew, galley(r.owned(crew, "cook"))); err != nil {
		return "", err
	}
	for _, keep := range []func(context.Context, *Crew) (string, error){r.keepSailors, r.keepCooks, r.keepErrand} {
		if missing, err := keep(ctx, crew); missing != "" || err != nil {
			return missing, err
		}
	}
	return "", nil
}

func (r *reconciler) owned(crew *Crew, role string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: crew.Namespace, Name: crew.Name + "-" + role, Labels: map[string]string{"crew": crew.Name, "role": role}}
}

// make makes an object unless it is there.
func (r *reconciler) make(ctx context.Context, crew *Crew, object client.Object) error {
	if err := controllerutil.SetControllerReference(crew, object, r.Scheme()); err != nil {
		return err
	}
	if err := r.Create(ctx, object); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func container(crew *Crew, script string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{
			Name: "main", Image: crew.Spec.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script}}},
	}
}

func (r *reconciler) keepSailors(ctx context.Context, crew *Crew) (string, error) {
	missing := ""
	for number := range crew.Spec.Sailors {
		pod := &corev1.Pod{ObjectMeta: r.owned(crew, fmt.Sprintf("sailor-%d", number))}
		pod.Labels["role"] = "sailor"
		err := r.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if apierrors.IsNotFound(err) {
			pod.Spec = container(crew, "sleep 3600")
			err = r.make(ctx, crew, pod)
		}
		if err != nil {
			return "", err
		}
		lacks, err := r.inspect(ctx, crew, pod)
		if err != nil {
			return "", err
		}
		if lacks != "" {
			missing = fmt.Sprintf("%s: %s", pod.Name, lacks)
		}
	}
	return missing, nil
}

// inspect replaces a pod that has ended, and notes one that does its work.
func (r *reconciler) inspect(ctx context.Context, crew *Crew, pod *corev1.Pod) (string, error) {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		return "it is going", nil
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return "it has ended", client.IgnoreNotFound(r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
	case !isReady(pod):
		return fmt.Sprintf("it is %s and not ready", pod.Status.Phase), nil
	case pod.Status.PodIP == "" || len(pod.Status.PodIPs) == 0 || pod.Status.HostIP == "":
		return "it has no addresses", nil
	case len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil:
		return "its container does not run", nil
	}
	node := &corev1.Node{}
	if err := r.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
		return fmt.Sprintf("its node %q: %v", pod.Spec.NodeName, err), client.IgnoreNotFound(err)
	}
	crew.Status.Sailors = append(crew.Status.Sailors,
		Sailor{Name: pod.Name, UID: string(pod.UID), IP: pod.Status.PodIP, Node: node.Name})
	return "", nil
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return pod.Status.Phase == corev1.PodRunning && condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func galley(meta metav1.ObjectMeta) *corev1.Service {
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: meta.Labels, Ports: []corev1.ServicePort{{Name: "peer", Port: 2380}}}}
}

func (r *reconciler) keepCooks(ctx context.Context, crew *Crew) (string, error) {
	set := &appsv1.StatefulSet{ObjectMeta: r.owned(crew, "cook")}
	labels := set.Labels
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, set, func() error {
		set.Labels = labels
		set.Spec.Replicas = &crew.Spec.Cooks
		if set.CreationTimestamp.IsZero() {
			set.Spec.ServiceName = set.Name
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
			set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: container(crew, "sleep 3600")}
		}
		return controllerutil.SetControllerReference(crew, set, r.Scheme())
	})
	if err != nil {
		return "", err
	}
	crew.Status.Cooks = set.Status.ReadyReplicas
	if set.Status.ObservedGeneration != set.Generation || set.Status.ReadyReplicas != crew.Spec.Cooks {
		return fmt.Sprintf("%d of %d cooks are ready", set.Status.ReadyReplicas, crew.Spec.Cooks), nil
	}
	cooks := &corev1.PodList{}
	if err := r.List(ctx, cooks, client.InNamespace(crew.Namespace), client.MatchingLabels(labels)); err != nil {
		return "", err
	}
	for i := range cooks.Items {
		if err := r.Get(ctx, client.ObjectKey{Name: cooks.Items[i].Spec.NodeName}, &corev1.Node{}); err != nil {
			return fmt.Sprintf("%s: its node %q: %v", cooks.Items[i].Name, cooks.Items[i].Spec.NodeName, err), client.IgnoreNotFound(err)
		}
	}
	if int32(len(cooks.Items)) != crew.Spec.Cooks {
		return fmt.Sprintf("%d pods of cooks are seen", len(cooks.Items)), nil
	}
	return "", nil
}

func (r *reconciler) keepErrand(ctx context.Context, crew *Crew) (string, error) {
	job := &batchv1.Job{ObjectMeta: r.owned(crew, "errand")}
	err := r.Get(ctx, client.ObjectKeyFromObject(job), job)
	if apierrors.IsNotFound(err) {
		job.Spec.Template.Spec = container(crew, "true")
		job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		err = r.make(ctx, crew, job)
	}
	if err == nil && job.Status.Succeeded == 0 {
		return "the errand is not done", nil
	}
	return "", err
}
