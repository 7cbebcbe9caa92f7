package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hanse.test/clients/check"
)

// world is what every check needs.
type world struct {
	config    *rest.Config
	client    client.Client
	namespace string
	manager   *running
	// first is the sailor that is killed.
	first Sailor
}

func checks(config *rest.Config) {
	direct, err := client.New(config, client.Options{Scheme: newScheme()})
	must(err)
	w := &world{config: config, client: direct, namespace: check.Unique("clients-crew")}
	suite := &check.Suite{}
	suite.Run("a namespace and a definition are made", w.prepare)
	suite.Run("a manager is elected and starts", w.elect)
	suite.Run("a Crew becomes ready", w.becomesReady)
	suite.Run("pods that were made directly run on nodes that there are", w.run)
	suite.Run("pods are selected by node", w.selected)
	suite.Run("a pod that is killed where it runs is replaced", w.replaced)
	suite.Run("a pod that is deleted is replaced", w.deleted)
	suite.Run("a StatefulSet is scaled", w.scaled)
	suite.Run("a Crew goes, and all that it owned with it, everywhere", w.goes)
	suite.Run("the manager stops, and what was made goes", w.stop)
	suite.Exit()
}

func (w *world) prepare(t *check.T) {
	t.Must(w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}), "create a namespace")
	if err := w.client.Create(t.Context(), crewDefinition()); !apierrors.IsAlreadyExists(err) {
		t.Must(err, "create a definition")
	}
	t.Eventually("the resource", func() error { return w.client.List(t.Context(), &CrewList{}, client.InNamespace(w.namespace)) })
}

func (w *world) elect(t *check.T) {
	w.manager = start(t, w.config, w.namespace)
	t.Eventually("the election", func() error {
		lease := &coordinationv1.Lease{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "crew-operator"}, lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("nobody holds the lease")
		}
		return nil
	})
}

// ready waits until the operator is content with the newest generation, and `also` is.
func (w *world) ready(t *check.T, also func(*Crew) error) *Crew {
	crew := &Crew{}
	t.Eventually("the Crew", func() error {
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hulk"}, crew); err != nil {
			return err
		}
		condition := apimeta.FindStatusCondition(crew.Status.Conditions, "Ready")
		if condition == nil || condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != crew.Generation {
			return fmt.Errorf("is not ready: %+v", crew.Status)
		}
		return also(crew)
	})
	return crew
}

func anyhow(*Crew) error { return nil }

func (w *world) becomesReady(t *check.T) {
	crew := &Crew{ObjectMeta: metav1.ObjectMeta{Name: "hulk", Namespace: w.namespace},
		Spec: CrewSpec{Sailors: 3, Cooks: 2, Image: "example.com/crew:1"}}
	t.Must(w.client.Create(t.Context(), crew), "create")
	found := w.ready(t, anyhow)
	t.Want(len(found.Status.Sailors) == 3 && found.Status.Cooks == 2, "three sailors and two cooks, not %+v", found.Status)
	w.first = found.Status.Sailors[0]
}

func (w *world) run(t *check.T) {
	for _, sailor := range w.ready(t, anyhow).Status.Sailors {
		pod, node := &corev1.Pod{}, &corev1.Node{}
		t.Must(w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: sailor.Name}, pod), "get a pod")
		t.Must(w.client.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, node), "get its node")
		t.Want(pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP == sailor.IP && pod.Status.StartTime != nil, "a pod that runs, not %+v", pod.Status)
		for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			holds := false
			for _, condition := range pod.Status.Conditions {
				holds = holds || condition.Type == kind && condition.Status == corev1.ConditionTrue
			}
			t.Want(holds, "the condition %s, not %+v", kind, pod.Status.Conditions)
		}
		owner := metav1.GetControllerOf(pod)
		t.Want(owner != nil && owner.Kind == "Crew", "its owner, not %+v", owner)
	}
}

func (w *world) selected(t *check.T) {
	pods := &corev1.PodList{}
	fields := client.MatchingFields{"spec.nodeName": w.first.Node}
	t.Must(w.client.List(t.Context(), pods, client.InNamespace(w.namespace), fields), "list")
	found := false
	for i := range pods.Items {
		found = found || pods.Items[i].Name == w.first.Name
	}
	t.Want(found, "%s among %d pods of %s", w.first.Name, len(pods.Items), w.first.Node)
}

// members are clients of what the kubeconfig knows beside the server itself, by name of the context.
func (w *world) members(t *check.T) map[string]client.Client {
	known, err := clientcmd.LoadFromFile(check.Kubeconfig())
	t.Must(err, "read the kubeconfig")
	members := map[string]client.Client{}
	for name := range known.Contexts {
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Node{}); err != nil {
			continue
		}
		config, err := clientcmd.NewNonInteractiveClientConfig(*known, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
		t.Must(err, "read the context %s", name)
		members[name], err = client.New(config, client.Options{Scheme: newScheme()})
		t.Must(err, "reach %s", name)
	}
	t.Want(len(members) > 0, "a context for each node")
	return members
}

// replaced kills a pod behind the operator's back: as a node's administrator, or a kubelet that is out of memory, would.
func (w *world) replaced(t *check.T) {
	member := w.members(t)[w.first.Node]
	pods := &corev1.PodList{}
	t.Must(member.List(t.Context(), pods, client.MatchingLabels{"crew": "hulk", "role": "sailor"}), "list")
	killed := false
	for i := range pods.Items {
		if pods.Items[i].Name == w.first.Name {
			t.Must(member.Delete(t.Context(), &pods.Items[i], client.GracePeriodSeconds(0)), "kill")
			killed = true
		}
	}
	t.Want(killed, "%s among %d pods in %s", w.first.Name, len(pods.Items), w.first.Node)
	w.first = w.another(t, w.first)
}

func (w *world) deleted(t *check.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.first.Name}}
	t.Must(w.client.Delete(t.Context(), pod), "delete")
	w.first = w.another(t, w.first)
}

// another waits until a pod by that name runs that is not the same one.
func (w *world) another(t *check.T, before Sailor) Sailor {
	var found Sailor
	w.ready(t, func(crew *Crew) error {
		for _, sailor := range crew.Status.Sailors {
			if sailor.Name == before.Name && sailor.UID != before.UID {
				found = sailor
				return nil
			}
		}
		return fmt.Errorf("%s is not replaced: %+v", before.Name, crew.Status.Sailors)
	})
	return found
}

func (w *world) scaled(t *check.T) {
	t.Must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crew := &Crew{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "hulk"}, crew); err != nil {
			return err
		}
		crew.Spec.Cooks = 4
		return w.client.Update(t.Context(), crew)
	}), "change the Crew")
	w.ready(t, func(crew *Crew) error {
		if crew.Status.Cooks != 4 {
			return fmt.Errorf("has %d cooks", crew.Status.Cooks)
		}
		return nil
	})
}

func (w *world) goes(t *check.T) {
	t.Must(w.client.Delete(t.Context(), &Crew{ObjectMeta: metav1.ObjectMeta{Name: "hulk", Namespace: w.namespace}}), "delete")
	places := w.members(t)
	places["the hub"] = w.client
	for place, there := range places {
		for _, list := range []client.ObjectList{&corev1.PodList{}, &appsv1.StatefulSetList{}, &batchv1.JobList{}, &corev1.ServiceList{}, &corev1.SecretList{}} {
			t.Eventually(fmt.Sprintf("%T of the Crew in %s", list, place), func() error {
				if err := there.List(t.Context(), list, client.MatchingLabels{"crew": "hulk"}); err != nil {
					return err
				}
				if left := apimeta.LenList(list); left > 0 {
					return fmt.Errorf("%d are left", left)
				}
				return nil
			})
		}
	}
}

func (w *world) stop(t *check.T) {
	w.manager.stop()
	t.Must(check.Receive(t, w.manager.ended, "the manager to end"), "stop")
	for _, object := range []client.Object{crewDefinition(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}} {
		t.Must(w.client.Delete(t.Context(), object), "delete %s", object.GetName())
		t.Eventually(object.GetName(), func() error {
			err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("is still there (%v)", err)
		})
	}
}
