package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

func (w *world) checkChanges(suite *check.Suite) {
	suite.Run("a Deployment gets its defaults", w.deploymentDefaults)
	suite.Run("a Service gets an address", w.serviceAddress)
	suite.Run("a strategic merge patch merges lists by key", w.strategicPatch)
	suite.Run("a JSON patch tests and changes", w.jsonPatch)
	suite.Run("a merge patch removes by null", w.mergePatch)
	suite.Run("writers that retry on conflict lose no write", w.retryOnConflict)
	suite.Run("a dry run keeps nothing", w.dryRun)
	suite.Run("a generated name is unique", w.generatedName)
	suite.Run("an invalid object is refused field by field", w.invalidObject)
	suite.Run("an unknown field is refused when validation is strict", w.strictFields)
	suite.Run("an immutable field cannot be changed", w.immutableField)
	suite.Run("a long list comes in pages", w.pages)
	suite.Run("a collection is deleted by selector", w.deleteCollection)
	suite.Run("dependents go with their owner", w.dependents)
	suite.Run("a finalizer holds an object", w.finalizer)
	suite.Run("access reviews answer", w.accessReviews)
}

func (w *world) deploymentDefaults(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	wanted := deployment("defaults")
	wanted.Spec.Replicas = nil
	created, err := deployments.Create(t.Context(), wanted, metav1.CreateOptions{})
	t.Must(err, "create")
	spec, pod := created.Spec, created.Spec.Template.Spec
	t.Want(created.Generation == 1, "generation 1, not %d", created.Generation)
	t.Want(ptr.Deref(spec.Replicas, 0) == 1, "one replica")
	t.Want(ptr.Deref(spec.ProgressDeadlineSeconds, 0) == 600, "a deadline of 600 s")
	t.Want(spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType, "a rolling update")
	t.Want(spec.Strategy.RollingUpdate.MaxSurge.String() == "25%", "a surge of 25%%")
	t.Want(pod.RestartPolicy == corev1.RestartPolicyAlways && pod.DNSPolicy == corev1.DNSClusterFirst, "pod defaults")
	t.Want(pod.SchedulerName == corev1.DefaultSchedulerName && pod.SecurityContext != nil, "pod defaults")
	container := pod.Containers[0]
	t.Want(container.ImagePullPolicy == corev1.PullIfNotPresent, "pull policy IfNotPresent for a tag")
	t.Want(container.TerminationMessagePath == "/dev/termination-log", "container defaults")
}

func (w *world) serviceAddress(t *check.T) {
	services := w.client.CoreV1().Services(w.namespace)
	wanted := &corev1.Service{ObjectMeta: named("address"), Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 80, NodePort: 0}}, Type: corev1.ServiceTypeNodePort}}
	created, err := services.Create(t.Context(), wanted, metav1.CreateOptions{})
	t.Must(err, "create")
	t.Want(created.Spec.ClusterIP != "" && created.Spec.ClusterIP == created.Spec.ClusterIPs[0], "an address")
	t.Want(created.Spec.Ports[0].NodePort >= 30000, "a node port, not %d", created.Spec.Ports[0].NodePort)
	t.Want(created.Spec.Ports[0].Protocol == corev1.ProtocolTCP, "TCP by default")
	t.Want(created.Spec.Ports[0].TargetPort.IntVal == 80, "the port as target")

	changed := created.DeepCopy()
	changed.Spec.ClusterIP, changed.Spec.ClusterIPs = "", nil
	updated, err := services.Update(t.Context(), changed, metav1.UpdateOptions{})
	t.Must(err, "update without the address")
	t.Want(updated.Spec.ClusterIP == created.Spec.ClusterIP, "the address kept")
	headless := &corev1.Service{ObjectMeta: named("headless"), Spec: corev1.ServiceSpec{ClusterIP: "None",
		Ports: []corev1.ServicePort{{Port: 80}}}}
	created, err = services.Create(t.Context(), headless, metav1.CreateOptions{})
	t.Must(err, "create a headless one")
	t.Want(created.Spec.ClusterIP == "None", "no address for a headless one")
}

func (w *world) strategicPatch(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Create(t.Context(), deployment("strategic"), metav1.CreateOptions{})
	t.Must(err, "create")
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/side:1"},
		{"name":"main","env":[{"name":"A","value":"1"}]}]}}}}`
	patched, err := deployments.Patch(t.Context(), "strategic", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Must(err, "patch")
	containers := patched.Spec.Template.Spec.Containers
	t.Want(len(containers) == 2, "two containers, not %d", len(containers))
	byName := map[string]corev1.Container{}
	for _, container := range containers {
		byName[container.Name] = container
	}
	t.Want(byName["main"].Image == "example.com/app:1" && len(byName["main"].Env) == 1, "the first one merged")
	t.Want(patched.Generation == 2, "generation 2, not %d", patched.Generation)

	patch = `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}`
	patched, err = deployments.Patch(t.Context(), "strategic", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	t.Must(err, "patch")
	t.Want(len(patched.Spec.Template.Spec.Containers) == 1, "the second one removed")
}

func (w *world) jsonPatch(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("json", map[string]string{"a": "1", "b": "2"}), metav1.CreateOptions{})
	t.Must(err, "create")
	patch := `[{"op":"test","path":"/data/a","value":"1"},{"op":"move","from":"/data/b","path":"/data/c"}]`
	patched, err := maps.Patch(t.Context(), "json", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	t.Must(err, "patch")
	t.Want(len(patched.Data) == 2 && patched.Data["c"] == "2", "b moved to c, not %v", patched.Data)
	patch = `[{"op":"test","path":"/data/a","value":"other"},{"op":"remove","path":"/data/a"}]`
	_, err = maps.Patch(t.Context(), "json", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	t.Refused(err, apierrors.IsInvalid, "patch whose test fails")
}

func (w *world) mergePatch(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("merge", map[string]string{"a": "1", "b": "2"}), metav1.CreateOptions{})
	t.Must(err, "create")
	patched, err := maps.Patch(t.Context(), "merge", types.MergePatchType, []byte(`{"data":{"a":null,"c":"3"}}`), metav1.PatchOptions{})
	t.Must(err, "patch")
	t.Want(len(patched.Data) == 2 && patched.Data["c"] == "3", "a gone and c there, not %v", patched.Data)
}

func (w *world) retryOnConflict(t *check.T) {
	const writers = 8
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("contended", nil), metav1.CreateOptions{})
	t.Must(err, "create")
	// Every round one writer at least succeeds, so as many rounds as writers are enough.
	backoff := retry.DefaultBackoff
	backoff.Steps = 4 * writers
	backoff.Factor = 1
	var group sync.WaitGroup
	failures := make([]error, writers)
	for i := range writers {
		group.Go(func() {
			failures[i] = retry.RetryOnConflict(backoff, func() error {
				found, err := maps.Get(t.Context(), "contended", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if found.Data == nil {
					found.Data = map[string]string{}
				}
				found.Data[fmt.Sprintf("writer-%d", i)] = "was here"
				_, err = maps.Update(t.Context(), found, metav1.UpdateOptions{})
				return err
			})
		})
	}
	group.Wait()
	t.Must(errors.Join(failures...), "update")
	found, err := maps.Get(t.Context(), "contended", metav1.GetOptions{})
	t.Must(err, "get")
	t.Want(len(found.Data) == writers, "%d writes kept, not %d", writers, len(found.Data))
}

func (w *world) dryRun(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	created, err := maps.Create(t.Context(), configMap("rehearsal", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	t.Must(err, "create")
	t.Want(created.UID != "", "an answer as if it were real")
	_, err = maps.Get(t.Context(), "rehearsal", metav1.GetOptions{})
	t.Refused(err, apierrors.IsNotFound, "get")
}

func (w *world) generatedName(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	seen := map[string]bool{}
	for range 5 {
		wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}
		created, err := maps.Create(t.Context(), wanted, metav1.CreateOptions{})
		t.Must(err, "create")
		t.Want(strings.HasPrefix(created.Name, "made-") && len(created.Name) == len("made-")+5, "a name, not %q", created.Name)
		seen[created.Name] = true
	}
	t.Want(len(seen) == 5, "five names, not %d", len(seen))
}

func (w *world) invalidObject(t *check.T) {
	wanted := deployment("invalid")
	wanted.Spec.Replicas = ptr.To[int32](-1)
	wanted.Spec.Template.Spec.Containers[0].Name = "Not Good"
	_, err := w.client.AppsV1().Deployments(w.namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
	t.Refused(err, apierrors.IsInvalid, "create")
	var status *apierrors.StatusError
	t.Want(errors.As(err, &status) && status.ErrStatus.Details != nil, "a status with details")
	fields := map[string]metav1.CauseType{}
	for _, cause := range status.ErrStatus.Details.Causes {
		fields[cause.Field] = cause.Type
	}
	t.Want(fields["spec.replicas"] == metav1.CauseTypeFieldValueInvalid, "spec.replicas among %v", fields)
	t.Want(fields["spec.template.spec.containers[0].name"] == metav1.CauseTypeFieldValueInvalid, "the name among %v", fields)
}

func (w *world) strictFields(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("strict", nil), metav1.CreateOptions{})
	t.Must(err, "create")
	patch := []byte(`{"spelled":"wrong"}`)
	_, err = maps.Patch(t.Context(), "strict", types.MergePatchType, patch, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	t.Refused(err, apierrors.IsInvalid, "patch strictly")
	_, err = maps.Patch(t.Context(), "strict", types.MergePatchType, patch, metav1.PatchOptions{FieldValidation: metav1.FieldValidationIgnore})
	t.Must(err, "patch and ignore")
}

func (w *world) immutableField(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	created, err := deployments.Create(t.Context(), deployment("immutable"), metav1.CreateOptions{})
	t.Must(err, "create")
	created.Spec.Selector = selecting("other")
	created.Spec.Template.Labels = map[string]string{"app": "other"}
	_, err = deployments.Update(t.Context(), created, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsInvalid, "update the selector")
}

func (w *world) pages(t *check.T) {
	const total, size = 23, 5
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	for i := range total {
		wanted := configMap(fmt.Sprintf("page-%02d", i), nil)
		wanted.Labels = map[string]string{"set": "pages"}
		_, err := maps.Create(t.Context(), wanted, metav1.CreateOptions{})
		t.Must(err, "create")
	}
	selected := metav1.ListOptions{LabelSelector: "set=pages"}
	requests, seen := 0, map[string]bool{}
	paged := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		requests++
		return maps.List(ctx, options)
	})
	paged.PageSize = size
	err := paged.EachListItem(t.Context(), selected, func(item runtime.Object) error {
		seen[item.(*corev1.ConfigMap).Name] = true
		return nil
	})
	t.Must(err, "list in pages")
	t.Want(len(seen) == total, "%d objects, not %d", total, len(seen))
	t.Want(requests >= total/size, "a request for each page, not %d", requests)

	// What a page leaves out is counted only where no selector makes counting costly.
	list, err := maps.List(t.Context(), metav1.ListOptions{Limit: size})
	t.Must(err, "list a page")
	t.Want(list.Continue != "" && ptr.Deref(list.RemainingItemCount, 0) > 0, "a token and a count of the rest")
	_, err = maps.List(t.Context(), metav1.ListOptions{Limit: size, Continue: "not a token"})
	t.Refused(err, apierrors.IsBadRequest, "list on from nonsense")
}

func (w *world) deleteCollection(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Create(t.Context(), configMap("bystander", nil), metav1.CreateOptions{})
	t.Must(err, "create")
	selected := metav1.ListOptions{LabelSelector: "set=pages"}
	t.Must(maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected), "delete")
	list, err := maps.List(t.Context(), selected)
	t.Must(err, "list")
	t.Want(len(list.Items) == 0, "none left, not %d", len(list.Items))
	_, err = maps.Get(t.Context(), "bystander", metav1.GetOptions{})
	t.Must(err, "get what was not selected")
}

func (w *world) dependents(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	owner, err := maps.Create(t.Context(), configMap("owner", nil), metav1.CreateOptions{})
	t.Must(err, "create the owner")
	child := configMap("dependent", nil)
	child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	_, err = maps.Create(t.Context(), child, metav1.CreateOptions{})
	t.Must(err, "create the dependent")
	foreground := metav1.DeletePropagationForeground
	t.Must(maps.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}), "delete the owner")
	for _, name := range []string{"dependent", "owner"} {
		t.Eventually(name, func() error {
			_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errorf("is still there (%v)", err)
		})
	}
}

func (w *world) finalizer(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	held := configMap("held", nil)
	held.Finalizers = []string{"hanse.test/hold"}
	_, err := maps.Create(t.Context(), held, metav1.CreateOptions{})
	t.Must(err, "create")
	t.Must(maps.Delete(t.Context(), "held", metav1.DeleteOptions{}), "delete")
	found, err := maps.Get(t.Context(), "held", metav1.GetOptions{})
	t.Must(err, "get what is held")
	t.Want(found.DeletionTimestamp != nil, "a time of deletion")
	found.Finalizers = nil
	_, err = maps.Update(t.Context(), found, metav1.UpdateOptions{})
	t.Must(err, "let go")
	_, err = maps.Get(t.Context(), "held", metav1.GetOptions{})
	t.Refused(err, apierrors.IsNotFound, "get what was let go")
}

func (w *world) accessReviews(t *check.T) {
	attributes := &authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: "get", Resource: "secrets"}
	self := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	mine, err := w.client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), self, metav1.CreateOptions{})
	t.Must(err, "ask for oneself")
	t.Want(mine.Status.Allowed, "allowed")
	other := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "nobody", ResourceAttributes: attributes}}
	theirs, err := w.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), other, metav1.CreateOptions{})
	t.Must(err, "ask for another")
	t.Want(!theirs.Status.Allowed, "not allowed")
}
