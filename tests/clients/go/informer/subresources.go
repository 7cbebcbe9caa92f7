package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	autoscalingapply "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

func (w *world) checkSubresources(suite *check.Suite) {
	suite.Run("status and spec change apart", w.statusApart)
	suite.Run("a Deployment is scaled through its typed client", w.typedScale)
	suite.Run("workloads are scaled through the scale client", w.scaleClient)
	suite.Run("a Job is finished by its status", w.jobStatus)
	suite.Run("a signing request is approved", w.approval)
	suite.Run("a namespace takes finalizers", w.namespaceFinalizers)
}

func (w *world) statusApart(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	created, err := deployments.Create(t.Context(), deployment("apart"), metav1.CreateOptions{})
	t.Must(err, "create")

	changed := created.DeepCopy()
	changed.Status = appsv1.DeploymentStatus{Replicas: 2, ObservedGeneration: 1}
	changed.Spec.Replicas = ptr.To[int32](9)
	updated, err := deployments.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
	t.Must(err, "update the status")
	t.Want(updated.Status.Replicas == 2 && *updated.Spec.Replicas == 2, "the status alone changed")
	t.Want(updated.Generation == 1, "no new generation")

	updated.Spec.Replicas, updated.Status.Replicas = ptr.To[int32](3), 7
	updated, err = deployments.Update(t.Context(), updated, metav1.UpdateOptions{})
	t.Must(err, "update the spec")
	t.Want(updated.Status.Replicas == 2 && *updated.Spec.Replicas == 3, "the spec alone changed")
	t.Want(updated.Generation == 2, "generation 2, not %d", updated.Generation)

	patch := `{"status":{"conditions":[{"type":"Available","status":"True","lastUpdateTime":null,"lastTransitionTime":null}]}}`
	patched, err := deployments.Patch(t.Context(), "apart", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	t.Must(err, "patch the status")
	t.Want(len(patched.Status.Conditions) == 1 && patched.Status.Replicas == 2, "one condition beside the rest")
}

func (w *world) typedScale(t *check.T) {
	deployments := w.client.AppsV1().Deployments(w.namespace)
	_, err := deployments.Create(t.Context(), deployment("scaled"), metav1.CreateOptions{})
	t.Must(err, "create")
	found, err := deployments.GetScale(t.Context(), "scaled", metav1.GetOptions{})
	t.Must(err, "get the scale")
	t.Want(found.Spec.Replicas == 2 && found.Status.Selector == "app=scaled", "two and a selector, not %v", found)
	found.Spec.Replicas = 5
	updated, err := deployments.UpdateScale(t.Context(), "scaled", found, metav1.UpdateOptions{})
	t.Must(err, "update the scale")
	t.Want(updated.Spec.Replicas == 5, "five")
	_, err = deployments.UpdateScale(t.Context(), "scaled", found, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsConflict, "update an old scale")
	applied, err := deployments.ApplyScale(t.Context(), "scaled",
		autoscalingapply.Scale().WithName("scaled").WithSpec(autoscalingapply.ScaleSpec().WithReplicas(6)),
		metav1.ApplyOptions{FieldManager: "scaler", Force: true})
	t.Must(err, "apply a scale")
	t.Want(applied.Spec.Replicas == 6, "six")
	owner, err := deployments.Get(t.Context(), "scaled", metav1.GetOptions{})
	t.Must(err, "get")
	t.Want(*owner.Spec.Replicas == 6 && owner.Generation == 3, "the Deployment scaled")
}

func (w *world) scaleClient(t *check.T) {
	discovery := memory.NewMemCacheClient(w.client.Discovery())
	client, err := scale.NewForConfig(w.config, restmapper.NewDeferredDiscoveryRESTMapper(discovery),
		dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(w.client.Discovery()))
	t.Must(err, "make a scale client")
	sets := w.client.AppsV1().StatefulSets(w.namespace)
	_, err = sets.Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: named("scaled"), Spec: appsv1.StatefulSetSpec{
		ServiceName: "scaled", Selector: selecting("scaled"), Template: podTemplate("scaled")}}, metav1.CreateOptions{})
	t.Must(err, "create")
	for _, resource := range []string{"deployments", "statefulsets"} {
		group := schema.GroupResource{Group: "apps", Resource: resource}
		found, err := client.Scales(w.namespace).Get(t.Context(), group, "scaled", metav1.GetOptions{})
		t.Must(err, "get the scale of %s", resource)
		found.Spec.Replicas = 4
		updated, err := client.Scales(w.namespace).Update(t.Context(), group, found, metav1.UpdateOptions{})
		t.Must(err, "update the scale of %s", resource)
		t.Want(updated.Spec.Replicas == 4, "four %s", resource)
		patched, err := client.Scales(w.namespace).Patch(t.Context(), group.WithVersion("v1"), "scaled", types.MergePatchType,
			[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
		t.Must(err, "patch the scale of %s", resource)
		t.Want(patched.Spec.Replicas == 3, "three %s", resource)
	}
	_, err = w.client.AppsV1().Deployments(w.namespace).UpdateScale(t.Context(), "nowhere",
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}}, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsNotFound, "scale what is not there")
}

func (w *world) jobStatus(t *check.T) {
	jobs := w.client.BatchV1().Jobs(w.namespace)
	created, err := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: named("finished"), Spec: jobSpec()}, metav1.CreateOptions{})
	t.Must(err, "create")
	t.Want(created.Spec.Selector != nil && created.Spec.Template.Labels["batch.kubernetes.io/controller-uid"] == string(created.UID),
		"a selector of its own")
	now := metav1.Now()
	created.Status = batchv1.JobStatus{Succeeded: 1, StartTime: &now, CompletionTime: &now, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
	finished, err := jobs.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	t.Must(err, "update the status")
	finished.Status.Conditions = nil
	_, err = jobs.UpdateStatus(t.Context(), finished, metav1.UpdateOptions{})
	t.Refused(err, apierrors.IsInvalid, "take the end back")
}

func (w *world) approval(t *check.T) {
	requests := w.client.CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Must(err, "make a key")
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "ann"}}, key)
	t.Must(err, "make a request")
	wanted := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
	created, err := requests.Create(t.Context(), wanted, metav1.CreateOptions{})
	t.Must(err, "create")
	t.Want(created.Spec.Username != "", "the name of who asked")
	created.Status.Conditions = append(created.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Checked"})
	approved, err := requests.UpdateApproval(t.Context(), created.Name, created, metav1.UpdateOptions{})
	t.Must(err, "approve")
	t.Want(len(approved.Status.Conditions) == 1, "one condition")
	t.Must(requests.Delete(t.Context(), created.Name, metav1.DeleteOptions{}), "delete")
}

func (w *world) namespaceFinalizers(t *check.T) {
	namespaces := w.client.CoreV1().Namespaces()
	found, err := namespaces.Get(t.Context(), w.namespace, metav1.GetOptions{})
	t.Must(err, "get")
	for _, finalizers := range [][]corev1.FinalizerName{{corev1.FinalizerKubernetes, "hanse.test/hold"}, {corev1.FinalizerKubernetes}} {
		found.Spec.Finalizers = finalizers
		found, err = namespaces.Finalize(t.Context(), found, metav1.UpdateOptions{})
		t.Must(err, "finalize")
		t.Want(len(found.Spec.Finalizers) == len(finalizers), "%v, not %v", finalizers, found.Spec.Finalizers)
	}
}
