package main

import (
	"context"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"hanse.test/clients/check"
)

// typed is what all typed clients have in common.
type typed[O, L any] interface {
	Create(context.Context, O, metav1.CreateOptions) (O, error)
	Update(context.Context, O, metav1.UpdateOptions) (O, error)
	Get(context.Context, string, metav1.GetOptions) (O, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// object is an object with its metadata.
type object interface {
	runtime.Object
	metav1.Object
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
}

func selecting(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func podTemplate(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: named(name), Spec: podSpec()}
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}}
}

func jobSpec() batchv1.JobSpec {
	spec := podSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: named(name), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: selecting(name), Template: podTemplate(name)}}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(name), Data: data}
}

// live takes an object through its life.
func live[O object, L runtime.Object](suite *check.Suite, client typed[O, L], kind string, wanted O) {
	suite.Run("life of a "+kind, func(t *check.T) {
		ctx := t.Context()
		created, err := client.Create(ctx, wanted, metav1.CreateOptions{})
		t.Must(err, "create")
		t.Want(created.GetUID() != "" && created.GetResourceVersion() != "", "an identity and a version")
		t.Want(!created.GetCreationTimestamp().Time.IsZero(), "a time of creation")
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		t.Refused(err, apierrors.IsAlreadyExists, "create again")

		found, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		t.Must(err, "get")
		t.Want(reflect.DeepEqual(found, created), "what was created, not %v", found)

		found.SetLabels(map[string]string{"app": wanted.GetName(), "updated": "yes"})
		updated, err := client.Update(ctx, found, metav1.UpdateOptions{})
		t.Must(err, "update")
		t.Want(updated.GetUID() == created.GetUID(), "the same identity")
		t.Want(updated.GetResourceVersion() != created.GetResourceVersion(), "another version")
		_, err = client.Update(ctx, created, metav1.UpdateOptions{})
		t.Refused(err, apierrors.IsConflict, "update an old version")

		patch := []byte(`{"metadata":{"labels":{"patched":"yes"}}}`)
		for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			patched, err := client.Patch(ctx, wanted.GetName(), kind, patch, metav1.PatchOptions{})
			t.Must(err, "patch as %s", kind)
			t.Want(len(patched.GetLabels()) == 3, "three labels, not %v", patched.GetLabels())
		}

		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: "app=" + wanted.GetName()})
		t.Must(err, "list")
		t.Want(meta.LenList(list) == 1, "one object in the list, not %d", meta.LenList(list))

		precondition := metav1.NewRVDeletionPrecondition(created.GetResourceVersion())
		t.Refused(client.Delete(ctx, wanted.GetName(), *precondition), apierrors.IsConflict, "delete an old version")
		background := metav1.DeletePropagationBackground
		t.Must(client.Delete(ctx, wanted.GetName(), metav1.DeleteOptions{PropagationPolicy: &background}), "delete")
		t.Eventually("the object", func() error {
			found, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil && len(found.GetFinalizers()) > 0 {
				// Volumes and claims are protected; nothing uses these, which a controller would see as well.
				found.SetFinalizers(nil)
				_, err = client.Update(ctx, found, metav1.UpdateOptions{})
			}
			return errorf("is still there (%v)", err)
		})
	})
}

func (w *world) checkKinds(suite *check.Suite) {
	core, apps, batch := w.client.CoreV1(), w.client.AppsV1(), w.client.BatchV1()
	ns := w.namespace

	live(suite, core.ConfigMaps(ns), "ConfigMap", &corev1.ConfigMap{ObjectMeta: named("settings"),
		Data: map[string]string{"colour": "red"}, BinaryData: map[string][]byte{"raw": {0, 1, 255}}})
	live(suite, core.Secrets(ns), "Secret", &corev1.Secret{ObjectMeta: named("login"),
		Data: map[string][]byte{"password": []byte("hunter2")}})
	live(suite, core.ServiceAccounts(ns), "ServiceAccount", &corev1.ServiceAccount{ObjectMeta: named("robot")})
	live(suite, core.Services(ns), "Service", &corev1.Service{ObjectMeta: named("web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	live(suite, core.PersistentVolumeClaims(ns), "PersistentVolumeClaim", &corev1.PersistentVolumeClaim{
		ObjectMeta: named("disk"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1500Mi")}}}})
	live(suite, core.LimitRanges(ns), "LimitRange", &corev1.LimitRange{ObjectMeta: named("limits"),
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
			Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}}})
	live(suite, core.Endpoints(ns), "Endpoints", &corev1.Endpoints{ObjectMeta: named("backends"),
		Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}},
			Ports: []corev1.EndpointPort{{Port: 80}}}}})
	live(suite, apps.Deployments(ns), "Deployment", deployment("web"))
	live(suite, apps.ReplicaSets(ns), "ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: named("web"),
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0), Selector: selecting("web"), Template: podTemplate("web")}})
	live(suite, apps.StatefulSets(ns), "StatefulSet", &appsv1.StatefulSet{ObjectMeta: named("db"),
		Spec: appsv1.StatefulSetSpec{ServiceName: "db", Selector: selecting("db"), Template: podTemplate("db")}})
	live(suite, apps.DaemonSets(ns), "DaemonSet", &appsv1.DaemonSet{ObjectMeta: named("agent"),
		Spec: appsv1.DaemonSetSpec{Selector: selecting("agent"), Template: podTemplate("agent")}})
	live(suite, apps.ControllerRevisions(ns), "ControllerRevision", &appsv1.ControllerRevision{
		ObjectMeta: named("first"), Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"replicas":1}}`)}})
	live(suite, batch.Jobs(ns), "Job", &batchv1.Job{ObjectMeta: named("import"), Spec: jobSpec()})
	live(suite, batch.CronJobs(ns), "CronJob", &batchv1.CronJob{ObjectMeta: named("nightly"),
		Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *", Suspend: ptr.To(true),
			JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec()}}})
	live(suite, w.client.CoordinationV1().Leases(ns), "Lease", &coordinationv1.Lease{ObjectMeta: named("lock"),
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), RenewTime: ptr.To(metav1.NowMicro())}})
	w.checkPolicyKinds(suite)
	w.checkClusterKinds(suite)
}

func (w *world) checkPolicyKinds(suite *check.Suite) {
	ns := w.namespace
	live(suite, w.client.NetworkingV1().Ingresses(ns), "Ingress", &networkingv1.Ingress{ObjectMeta: named("front"),
		Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}})
	live(suite, w.client.NetworkingV1().NetworkPolicies(ns), "NetworkPolicy", &networkingv1.NetworkPolicy{
		ObjectMeta: named("closed"), Spec: networkingv1.NetworkPolicySpec{PodSelector: *selecting("web")}})
	live(suite, w.client.AutoscalingV2().HorizontalPodAutoscalers(ns), "HorizontalPodAutoscaler",
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named("web"), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    5}})
	live(suite, w.client.PolicyV1().PodDisruptionBudgets(ns), "PodDisruptionBudget", &policyv1.PodDisruptionBudget{
		ObjectMeta: named("web"), Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString("50%")), Selector: selecting("web")}})
	live(suite, w.client.RbacV1().Roles(ns), "Role", &rbacv1.Role{ObjectMeta: named("reader"),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}})
	live(suite, w.client.RbacV1().RoleBindings(ns), "RoleBinding", &rbacv1.RoleBinding{ObjectMeta: named("readers"),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}}})
	live(suite, w.client.DiscoveryV1().EndpointSlices(ns), "EndpointSlice", &discoveryv1.EndpointSlice{
		ObjectMeta: named("web-1"), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}})
}

func (w *world) checkClusterKinds(suite *check.Suite) {
	live(suite, w.client.CoreV1().Nodes(), "Node", &corev1.Node{ObjectMeta: named(w.namespace)})
	live(suite, w.client.CoreV1().PersistentVolumes(), "PersistentVolume", &corev1.PersistentVolume{
		ObjectMeta: named(w.namespace), Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: "nfs.example.com", Path: "/"}}}})
	live(suite, w.client.StorageV1().StorageClasses(), "StorageClass", &storagev1.StorageClass{
		ObjectMeta: named(w.namespace), Provisioner: "example.com/disks"})
	live(suite, w.client.SchedulingV1().PriorityClasses(), "PriorityClass", &schedulingv1.PriorityClass{
		ObjectMeta: named(w.namespace), Value: 1000})
	live(suite, w.client.NetworkingV1().IngressClasses(), "IngressClass", &networkingv1.IngressClass{
		ObjectMeta: named(w.namespace), Spec: networkingv1.IngressClassSpec{Controller: "example.com/ingress"}})
	live(suite, w.client.RbacV1().ClusterRoles(), "ClusterRole", &rbacv1.ClusterRole{ObjectMeta: named(w.namespace),
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/healthz"}, Verbs: []string{"get"}}}})

	// A server may answer in JSON, which every client accepts as well.
	suite.Run("bodies are sent in protobuf", func(t *check.T) {
		const protobuf = "application/vnd.kubernetes.protobuf"
		for _, method := range []string{"POST ", "PUT "} {
			t.Want(w.requests.matching(method, "/deployments", " "+protobuf+" -> ") > 0, "%sof a Deployment in it", method)
		}
	})
}
