package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

func (w *world) checkPods(suite *check.Suite) {
	suite.Run("a Pod is bound to a node once", w.binding)
	suite.Run("a Pod gets an ephemeral container", w.ephemeralContainer)
	suite.Run("a Pod is resized in place", w.resize)
	suite.Run("a Pod on a node goes when it is deleted without grace", w.graceful)
	suite.Run("a Pod is evicted as its budget allows", w.eviction)
	suite.Run("Pods are selected by field", w.podFields)
	suite.Run("an event recorder records and counts", w.eventRecorder)
}

func (w *world) pod(t *check.T, name string) *corev1.Pod {
	wanted := &corev1.Pod{ObjectMeta: named(name), Spec: podSpec()}
	wanted.Spec.AutomountServiceAccountToken = ptr.To(false)
	wanted.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	created, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	t.Must(err, "create pod %s", name)
	return created
}

func (w *world) bind(ctx context.Context, name, node string) error {
	return w.client.CoreV1().Pods(w.namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
}

// run writes what a kubelet would.
func (w *world) run(t *check.T, name string) *corev1.Pod {
	pods := w.client.CoreV1().Pods(w.namespace)
	found, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	t.Must(err, "get pod %s", name)
	found.Status.Phase = corev1.PodRunning
	found.Status.Conditions = append(found.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	found, err = pods.UpdateStatus(t.Context(), found, metav1.UpdateOptions{})
	t.Must(err, "update the status of pod %s", name)
	return found
}

func (w *world) binding(t *check.T) {
	created := w.pod(t, "bound")
	t.Want(created.Status.Phase == corev1.PodPending && created.Status.QOSClass == corev1.PodQOSBurstable, "a pending pod")
	t.Want(created.Spec.ServiceAccountName == "default", "the service account default, not %q", created.Spec.ServiceAccountName)
	t.Must(w.bind(t.Context(), "bound", "node-1"), "bind")
	found, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), "bound", metav1.GetOptions{})
	t.Must(err, "get")
	t.Want(found.Spec.NodeName == "node-1", "a node")
	scheduled := false
	for _, condition := range found.Status.Conditions {
		scheduled = scheduled || condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue
	}
	t.Want(scheduled, "condition PodScheduled")
	t.Refused(w.bind(t.Context(), "bound", "node-2"), apierrors.IsConflict, "bind again")
}

func (w *world) ephemeralContainer(t *check.T) {
	created := w.pod(t, "debugged")
	pods := w.client.CoreV1().Pods(w.namespace)
	created.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "shell", Image: "example.com/shell:1"}}}
	_, err := pods.Update(t.Context(), created, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsInvalid, "add it by an update of the pod")
	updated, err := pods.UpdateEphemeralContainers(t.Context(), "debugged", created, metav1.UpdateOptions{})
	t.Must(err, "add it")
	t.Want(len(updated.Spec.EphemeralContainers) == 1, "one ephemeral container")
	updated.Spec.EphemeralContainers = nil
	_, err = pods.UpdateEphemeralContainers(t.Context(), "debugged", updated, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsInvalid, "remove it")
}

func (w *world) resize(t *check.T) {
	created := w.pod(t, "resized")
	pods := w.client.CoreV1().Pods(w.namespace)
	created.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("200m")
	_, err := pods.Update(t.Context(), created, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsInvalid, "resize by an update of the pod")
	updated, err := pods.UpdateResize(t.Context(), "resized", created, metav1.UpdateOptions{})
	t.Must(err, "resize")
	t.Want(updated.Spec.Containers[0].Resources.Requests.Cpu().String() == "200m", "200m")
}

func (w *world) graceful(t *check.T) {
	w.pod(t, "graceful")
	t.Must(w.bind(t.Context(), "graceful", "node-1"), "bind")
	pods := w.client.CoreV1().Pods(w.namespace)
	t.Must(pods.Delete(t.Context(), "graceful", metav1.DeleteOptions{}), "delete")
	found, err := pods.Get(t.Context(), "graceful", metav1.GetOptions{})
	t.Must(err, "get what the kubelet has not yet stopped")
	t.Want(ptr.Deref(found.DeletionGracePeriodSeconds, 0) == 30, "30 s of grace")
	t.Must(pods.Delete(t.Context(), "graceful", *metav1.NewDeleteOptions(0)), "delete without grace")
	_, err = pods.Get(t.Context(), "graceful", metav1.GetOptions{})
	t.Refused(err, apierrors.IsNotFound, "get")
}

func (w *world) eviction(t *check.T) {
	budgets := w.client.PolicyV1().PodDisruptionBudgets(w.namespace)
	for _, name := range []string{"evicted", "evicted-too"} {
		w.pod(t, name)
		t.Must(w.bind(t.Context(), name, "node-1"), "bind")
		found := w.run(t, name)
		found.Labels["budget"] = "tight"
		_, err := w.client.CoreV1().Pods(w.namespace).Update(t.Context(), found, metav1.UpdateOptions{})
		t.Must(err, "label")
	}
	budget, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: named("tight"), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"budget": "tight"}}}}, metav1.CreateOptions{})
	t.Must(err, "create the budget")
	// As EvictV1 does it, but a refusal is the answer here: no retry after the time that the server proposes.
	evict := func(name string) error {
		return w.client.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(w.namespace).Resource("pods").Name(name).
			SubResource("eviction").Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(t.Context()).Error()
	}
	t.Refused(evict("evicted"), apierrors.IsTooManyRequests, "evict before the budget was counted")

	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptionsAllowed: 1,
		CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2}
	_, err = budgets.UpdateStatus(t.Context(), budget, metav1.UpdateOptions{})
	t.Must(err, "count the budget")
	t.Must(evict("evicted"), "evict")
	found, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), "evicted", metav1.GetOptions{})
	t.Must(err, "get")
	t.Want(found.DeletionTimestamp != nil, "a pod that ends")
	budget, err = budgets.Get(t.Context(), "tight", metav1.GetOptions{})
	t.Must(err, "get the budget")
	_, noted := budget.Status.DisruptedPods["evicted"]
	t.Want(budget.Status.DisruptionsAllowed == 0 && noted, "the budget spent")
	t.Refused(evict("evicted-too"), apierrors.IsTooManyRequests, "evict another")
}

func (w *world) podFields(t *check.T) {
	list, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node-1,status.phase=Running"})
	t.Must(err, "list")
	t.Want(len(list.Items) == 2, "the two that run there, not %d", len(list.Items))
}

func (w *world) eventRecorder(t *check.T) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: w.client.EventsV1()})
	defer broadcaster.Shutdown()
	t.Must(broadcaster.StartRecordingToSinkWithContext(t.Context()), "start")
	recorder := broadcaster.NewRecorder(scheme.Scheme, "hanse-test")
	found, err := w.client.CoreV1().Pods(w.namespace).Get(t.Context(), "bound", metav1.GetOptions{})
	t.Must(err, "get")
	recorder.Eventf(found, nil, corev1.EventTypeNormal, "Tested", "Testing", "seen by %s", "the check")
	var event *eventsv1.Event
	t.Eventually("the event", func() error {
		list, err := w.client.EventsV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Tested"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return errorf("seen %d times", len(list.Items))
		}
		event = &list.Items[0]
		return nil
	})
	// The same event in the older group's clothes.
	old, err := w.client.CoreV1().Events(w.namespace).Get(t.Context(), event.Name, metav1.GetOptions{})
	t.Must(err, "get it from the core group")
	t.Want(old.Message == "seen by the check" && old.InvolvedObject.Name == "bound", "the same event, not %v", old)
}
