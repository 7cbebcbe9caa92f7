package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

func (w *world) checkApply(suite *check.Suite) {
	suite.Run("apply creates, and takes away what is no longer applied", w.applyAndRemove)
	suite.Run("another manager's field is a conflict until forced", w.applyConflict)
	suite.Run("what one applied can be extracted", w.applyExtract)
	suite.Run("two managers share lists with keys", w.applyShared)
	suite.Run("a status is applied apart", w.applyStatus)
	suite.Run("applying the same again changes nothing", w.applyUnchanged)
}

func by(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }

func deploymentApply(name, namespace string) *appsapply.DeploymentApplyConfiguration {
	return appsapply.Deployment(name, namespace).WithSpec(appsapply.DeploymentSpec().
		WithReplicas(2).
		WithSelector(metaapply.LabelSelector().WithMatchLabels(map[string]string{"app": name})).
		WithTemplate(coreapply.PodTemplateSpec().
			WithLabels(map[string]string{"app": name}).
			WithSpec(coreapply.PodSpec().WithContainers(coreapply.Container().
				WithName("main").WithImage("example.com/app:1").
				WithPorts(coreapply.ContainerPort().WithContainerPort(8080))))))
}

func (w *world) applyAndRemove(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	wanted := coreapply.ConfigMap("applied", w.namespace).WithLabels(map[string]string{"keep": "yes"}).
		WithData(map[string]string{"a": "1", "b": "2"})
	created, err := maps.Apply(t.Context(), wanted, by("one"))
	t.Must(err, "apply")
	t.Want(len(created.Data) == 2, "two keys")
	t.Want(len(created.ManagedFields) == 1 && created.ManagedFields[0].Manager == "one" &&
		created.ManagedFields[0].Operation == metav1.ManagedFieldsOperationApply, "one manager, not %v", created.ManagedFields)
	wanted = coreapply.ConfigMap("applied", w.namespace).WithData(map[string]string{"b": "3"})
	changed, err := maps.Apply(t.Context(), wanted, by("one"))
	t.Must(err, "apply less")
	t.Want(len(changed.Data) == 1 && changed.Data["b"] == "3" && len(changed.Labels) == 0, "the rest gone, not %v", changed)
	t.Want(changed.UID == created.UID, "the same object")
}

func (w *world) applyConflict(t *check.T) {
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	_, err := maps.Apply(t.Context(), coreapply.ConfigMap("disputed", w.namespace).WithData(map[string]string{"a": "1"}), by("one"))
	t.Must(err, "apply")
	wanted := coreapply.ConfigMap("disputed", w.namespace).WithData(map[string]string{"a": "2"})
	_, err = maps.Apply(t.Context(), wanted, by("two"))
	t.Refused(err, apierrors.IsConflict, "apply another value")
	status := err.(*apierrors.StatusError).ErrStatus
	t.Want(len(status.Details.Causes) == 1 && status.Details.Causes[0].Type == metav1.CauseTypeFieldManagerConflict &&
		status.Details.Causes[0].Field == ".data.a", "the field named, not %v", status.Details)
	forced := metav1.ApplyOptions{FieldManager: "two", Force: true}
	changed, err := maps.Apply(t.Context(), wanted, forced)
	t.Must(err, "force")
	t.Want(changed.Data["a"] == "2" && len(changed.ManagedFields) == 1, "the field taken over, not %v", changed.ManagedFields)
}

func (w *world) applyExtract(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Apply(t.Context(), deploymentApply("extracted", w.namespace), by("one"))
	t.Must(err, "apply")
	_, err = deployments.Apply(t.Context(), appsapply.Deployment("extracted", w.namespace).
		WithAnnotations(map[string]string{"two": "yes"}), by("two"))
	t.Must(err, "apply as another")
	found, err := deployments.Get(t.Context(), "extracted", metav1.GetOptions{})
	t.Must(err, "get")
	mine, err := appsapply.ExtractDeployment(found, "one")
	t.Must(err, "extract")
	container := mine.Spec.Template.Spec.Containers[0]
	t.Want(*mine.Spec.Replicas == 2 && *container.Image == "example.com/app:1", "what was applied, not %v", mine)
	t.Want(container.ImagePullPolicy == nil && mine.Spec.ProgressDeadlineSeconds == nil, "no defaults")
	t.Want(len(mine.Annotations) == 0, "nothing of another manager")

	mine.Spec.WithReplicas(4)
	changed, err := deployments.Apply(t.Context(), mine, by("one"))
	t.Must(err, "change what was extracted, and apply")
	t.Want(*changed.Spec.Replicas == 4 && changed.Annotations["two"] == "yes", "the change beside the other's part")
}

func (w *world) applyShared(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Apply(t.Context(), deploymentApply("shared", w.namespace), by("one"))
	t.Must(err, "apply")
	sidecar := appsapply.Deployment("shared", w.namespace).WithSpec(appsapply.DeploymentSpec().
		WithTemplate(coreapply.PodTemplateSpec().WithSpec(coreapply.PodSpec().WithContainers(
			coreapply.Container().WithName("side").WithImage("example.com/side:1"),
			coreapply.Container().WithName("main").WithPorts(coreapply.ContainerPort().WithContainerPort(9090).WithName("metrics"))))))
	changed, err := deployments.Apply(t.Context(), sidecar, by("two"))
	t.Must(err, "apply as another")
	t.Want(len(changed.Spec.Template.Spec.Containers) == 2, "two containers")
	for _, container := range changed.Spec.Template.Spec.Containers {
		t.Want(container.Name != "main" || len(container.Ports) == 2, "two ports, not %v", container.Ports)
	}

	// The second manager gives up its part, and the first one's is untouched.
	changed, err = deployments.Apply(t.Context(), appsapply.Deployment("shared", w.namespace), by("two"))
	t.Must(err, "give up")
	containers := changed.Spec.Template.Spec.Containers
	t.Want(len(containers) == 1 && len(containers[0].Ports) == 1 && containers[0].Ports[0].ContainerPort == 8080,
		"one container with one port, not %v", containers)
}

func (w *world) applyStatus(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Apply(t.Context(), deploymentApply("status", w.namespace), by("one"))
	t.Must(err, "apply")
	condition := appsapply.DeploymentCondition().WithType(appsv1.DeploymentAvailable).WithStatus(corev1.ConditionTrue)
	status := appsapply.Deployment("status", w.namespace).WithStatus(appsapply.DeploymentStatus().WithReplicas(2).WithConditions(condition))
	changed, err := deployments.ApplyStatus(t.Context(), status, by("controller"))
	t.Must(err, "apply the status")
	t.Want(changed.Status.Replicas == 2 && len(changed.Status.Conditions) == 1, "the status")
	extracted, err := appsapply.ExtractDeploymentStatus(changed, "controller")
	t.Must(err, "extract")
	t.Want(extracted.Spec == nil && ptr.Deref(extracted.Status.Replicas, 0) == 2, "the status alone, not %v", extracted)
}

func (w *world) applyUnchanged(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	first, err := deployments.Apply(t.Context(), deploymentApply("unchanged", w.namespace), by("one"))
	t.Must(err, "apply")
	second, err := deployments.Apply(t.Context(), deploymentApply("unchanged", w.namespace), by("one"))
	t.Must(err, "apply again")
	t.Want(first.ResourceVersion == second.ResourceVersion, "the same version")
}
