package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deployment keeps one with so many pods of an image, and says whether they all are available.
func (k *kit) deployment(ctx context.Context, resource *unstructured.Unstructured, role, image string, replicas int32) (*appsv1.Deployment, bool, error) {
	deployment := &appsv1.Deployment{ObjectMeta: k.meta(resource, role)}
	labels := deployment.Labels
	err := k.ensure(ctx, resource, deployment, func() {
		deployment.Labels = labels
		deployment.Spec.Replicas = &replicas
		if deployment.CreationTimestamp.IsZero() {
			deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
			deployment.Spec.Template = template(labels, image)
		}
		deployment.Spec.Template.Spec.Containers[0].Image = image
	})
	return deployment, rolledOut(deployment), err
}

func rolledOut(it *appsv1.Deployment) bool {
	wanted := *it.Spec.Replicas
	return it.Status.ObservedGeneration == it.Generation && it.Status.UpdatedReplicas == wanted &&
		it.Status.AvailableReplicas == wanted && it.Status.Replicas == wanted
}

func (k *kit) service(ctx context.Context, resource *unstructured.Unstructured, role string, selector map[string]string, port int32) error {
	service := &corev1.Service{ObjectMeta: k.meta(resource, role)}
	return k.ensure(ctx, resource, service, func() {
		service.Spec.Selector = selector
		if service.CreationTimestamp.IsZero() {
			service.Spec.Ports = []corev1.ServicePort{{Name: "main", Port: port, TargetPort: intstr.FromString("main")}}
		}
	})
}

// memcached keeps a Deployment, a Service and a budget, and tells the names of the pods that serve.
var memcached = operator{
	kind: "Memcached",
	owns: []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		deployment, done, err := k.deployment(ctx, resource, "", text(resource, "spec", "image"), number(resource, "spec", "size"))
		if err != nil {
			return outcome{}, err
		}
		if err := k.service(ctx, resource, "", k.labels(resource, ""), 11211); err != nil {
			return outcome{}, err
		}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: k.meta(resource, "")}
		if err := k.ensure(ctx, resource, budget, func() {
			most := intstr.FromInt32(1)
			budget.Spec.MaxUnavailable, budget.Spec.Selector = &most, deployment.Spec.Selector
		}); err != nil {
			return outcome{}, err
		}
		if !done {
			k.recorder.Eventf(resource, nil, corev1.EventTypeNormal, "Scaling", "Reconcile", "pods are on their way")
			return outcome{missing: "the Deployment rolls out"}, nil
		}
		pods := &corev1.PodList{}
		if err := k.List(ctx, pods, client.InNamespace(resource.GetNamespace()), client.MatchingLabels(k.labels(resource, ""))); err != nil {
			return outcome{}, err
		}
		var nodes []any
		for i := range pods.Items {
			if pods.Items[i].DeletionTimestamp == nil && pods.Items[i].Status.PodIP != "" {
				nodes = append(nodes, pods.Items[i].Status.PodIP)
			}
		}
		slices.SortFunc(nodes, func(a, b any) int { return slices.Compare([]byte(a.(string)), []byte(b.(string))) })
		if len(nodes) != int(number(resource, "spec", "size")) {
			return outcome{missing: fmt.Sprintf("%d pods are seen", len(nodes)), again: second}, nil
		}
		return outcome{fields: map[string]any{"nodes": nodes, "size": int64(len(nodes))}}, nil
	},
}

// website applies all it needs by server-side apply, and waits for an address.
var website = operator{
	kind: "Website",
	owns: []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &networkingv1.Ingress{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		name, namespace, host := resource.GetName(), resource.GetNamespace(), text(resource, "spec", "host")
		labels := k.labels(resource, "")
		owner := metaapply.OwnerReference().WithAPIVersion(resource.GetAPIVersion()).WithKind(resource.GetKind()).
			WithName(name).WithUID(resource.GetUID()).WithController(true).WithBlockOwnerDeletion(true)
		pages := coreapply.ConfigMap(name, namespace).WithOwnerReferences(owner).WithData(map[string]string{"index.html": text(resource, "spec", "page")})
		pods := coreapply.PodTemplateSpec().WithLabels(labels).WithSpec(coreapply.PodSpec().
			WithContainers(coreapply.Container().WithName("web").WithImage("example.com/web:1").
				WithPorts(coreapply.ContainerPort().WithName("http").WithContainerPort(80)).
				WithVolumeMounts(coreapply.VolumeMount().WithName("pages").WithMountPath("/pages"))).
			WithVolumes(coreapply.Volume().WithName("pages").WithConfigMap(coreapply.ConfigMapVolumeSource().WithName(name))))
		deployment := appsapply.Deployment(name, namespace).WithOwnerReferences(owner).WithSpec(appsapply.DeploymentSpec().
			WithReplicas(number(resource, "spec", "replicas")).WithSelector(metaapply.LabelSelector().WithMatchLabels(labels)).WithTemplate(pods))
		service := coreapply.Service(name, namespace).WithOwnerReferences(owner).WithSpec(coreapply.ServiceSpec().WithSelector(labels).
			WithPorts(coreapply.ServicePort().WithName("http").WithPort(80).WithTargetPort(intstr.FromString("http"))))
		backend := networkingapply.IngressBackend().WithService(networkingapply.IngressServiceBackend().WithName(name).
			WithPort(networkingapply.ServiceBackendPort().WithName("http")))
		ingress := networkingapply.Ingress(name, namespace).WithOwnerReferences(owner).WithSpec(networkingapply.IngressSpec().WithIngressClassName("nginx").
			WithRules(networkingapply.IngressRule().WithHost(host).WithHTTP(networkingapply.HTTPIngressRuleValue().
				WithPaths(networkingapply.HTTPIngressPath().WithPath("/").WithPathType(networkingv1.PathTypePrefix).WithBackend(backend)))))
		for _, wanted := range []any{pages, deployment, service, ingress} {
			if err := k.Apply(ctx, wanted.(interface{ IsApplyConfiguration() }), client.FieldOwner("website"), client.ForceOwnership); err != nil {
				return outcome{}, err
			}
		}
		live, entry := &appsv1.Deployment{}, &networkingv1.Ingress{}
		key := client.ObjectKeyFromObject(resource)
		if err := k.Get(ctx, key, live); err != nil {
			return outcome{again: second}, client.IgnoreNotFound(err)
		}
		if err := k.Get(ctx, key, entry); err != nil {
			return outcome{again: second}, client.IgnoreNotFound(err)
		}
		if !rolledOut(live) || *live.Spec.Replicas != number(resource, "spec", "replicas") {
			return outcome{missing: "the pods are not there"}, nil
		}
		if len(entry.Status.LoadBalancer.Ingress) == 0 {
			return outcome{missing: "there is no address"}, nil
		}
		return outcome{fields: map[string]any{"url": "http://" + host, "address": entry.Status.LoadBalancer.Ingress[0].IP}}, nil
	},
}

// workers scales by the subresource, as autoscalers do.
var workers = operator{
	kind: "Workers",
	owns: []client.Object{&appsv1.Deployment{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		deployment := &appsv1.Deployment{ObjectMeta: k.meta(resource, "")}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: deployment.Labels}
		deployment.Spec.Template = template(deployment.Labels, "example.com/worker:1")
		if err := k.once(ctx, resource, deployment); err != nil {
			return outcome{}, err
		}
		waiting, each := number(resource, "spec", "messages"), max(number(resource, "spec", "messagesPerWorker"), 1)
		wanted := min((waiting+each-1)/each, number(resource, "spec", "maxReplicas"))
		scale := &autoscalingv1.Scale{}
		if err := k.SubResource("scale").Get(ctx, deployment, scale); err != nil {
			return outcome{}, err
		}
		if scale.Spec.Replicas != wanted {
			scale.Spec.Replicas = wanted
			return outcome{missing: "it is scaled"}, k.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale))
		}
		fields := map[string]any{"replicas": int64(scale.Status.Replicas), "selector": scale.Status.Selector}
		if scale.Status.Replicas != wanted || !rolledOut(deployment) {
			return outcome{missing: fmt.Sprintf("%d of %d are there", scale.Status.Replicas, wanted), fields: fields, again: second}, nil
		}
		return outcome{fields: fields}, nil
	},
}

// canary divides pods between two Deployments behind one Service; a weight of 100 makes the canary the stable one.
var canary = operator{
	kind: "Canary",
	owns: []client.Object{&appsv1.Deployment{}, &corev1.Service{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		all, weight := number(resource, "spec", "replicas"), number(resource, "spec", "weight")
		share := all * weight / 100
		stable, next := text(resource, "spec", "stable"), text(resource, "spec", "canary")
		if weight >= 100 {
			stable, share = next, 0
		}
		if err := k.service(ctx, resource, "", map[string]string{"app.kubernetes.io/instance": resource.GetName()}, 80); err != nil {
			return outcome{}, err
		}
		_, stableDone, err := k.deployment(ctx, resource, "stable", stable, all-share)
		if err != nil {
			return outcome{}, err
		}
		_, canaryDone, err := k.deployment(ctx, resource, "canary", next, share)
		if err != nil {
			return outcome{}, err
		}
		if !stableDone || !canaryDone {
			return outcome{missing: "pods are on their way"}, nil
		}
		return outcome{fields: map[string]any{"stable": stable, "canaryReplicas": int64(share), "stableReplicas": int64(all - share)}}, nil
	},
}

// blueGreen turns the Service to the other colour when that one is ready, and only then puts the first to sleep.
var blueGreen = operator{
	kind: "BlueGreen",
	owns: []client.Object{&appsv1.Deployment{}, &corev1.Service{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		replicas, image := number(resource, "spec", "replicas"), text(resource, "spec", "image")
		active := text(resource, "status", "active")
		images, _, _ := unstructured.NestedStringMap(resource.Object, "status", "images")
		switch {
		case active == "":
			active, images = "blue", map[string]string{"blue": image, "green": image}
		case images[active] != image:
			images[other(active)] = image
		}
		told := map[string]any{"blue": images["blue"], "green": images["green"]}
		wanted := active
		if images[active] != image {
			wanted = other(active)
		}
		_, ready, err := k.deployment(ctx, resource, wanted, images[wanted], replicas)
		if err != nil {
			return outcome{}, err
		}
		if !ready {
			return outcome{missing: wanted + " is not ready", fields: map[string]any{"active": active, "images": told}}, nil
		}
		if err := k.service(ctx, resource, "", k.labels(resource, wanted), 80); err != nil {
			return outcome{}, err
		}
		_, asleep, err := k.deployment(ctx, resource, other(wanted), images[other(wanted)], 0)
		if err != nil {
			return outcome{}, err
		}
		missing := ""
		if !asleep {
			missing = other(wanted) + " goes to sleep"
		}
		return outcome{missing: missing, fields: map[string]any{"active": wanted, "images": told}}, nil
	},
}

func other(colour string) string {
	if colour == "blue" {
		return "green"
	}
	return "blue"
}

// podSet makes pods itself, with names that the server chooses, and replaces those that ended.
var podSet = operator{
	kind: "PodSet",
	owns: []client.Object{&corev1.Pod{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		// Not by the cache, for it may not know yet of what was made a moment ago.
		pods := &corev1.PodList{}
		if err := k.direct.List(ctx, pods, client.InNamespace(resource.GetNamespace()), client.MatchingLabels(k.labels(resource, ""))); err != nil {
			return outcome{}, err
		}
		var alive, ready int32
		wanted := number(resource, "spec", "replicas")
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp != nil {
				continue
			}
			ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
			if ended || alive == wanted {
				if err := k.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
					return outcome{}, err
				}
				continue
			}
			alive++
			if isReady(pod) {
				ready++
			}
		}
		for ; alive < wanted; alive++ {
			made := template(k.labels(resource, ""), "example.com/pod:1")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: resource.GetName() + "-", Namespace: resource.GetNamespace(), Labels: made.Labels}, Spec: made.Spec}
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(resource, resource.GroupVersionKind())}
			if err := k.Create(ctx, pod); err != nil {
				return outcome{}, err
			}
		}
		fields := map[string]any{"replicas": int64(alive), "readyReplicas": int64(ready)}
		if ready != wanted {
			return outcome{missing: "not all are ready", fields: fields}, nil
		}
		return outcome{fields: fields}, nil
	},
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// agent keeps one pod on each node, with an account and a configuration; a change of that rolls them.
var agent = operator{
	kind: "Agent",
	owns: []client.Object{&appsv1.DaemonSet{}, &corev1.ConfigMap{}, &corev1.ServiceAccount{}},
	keep: func(ctx context.Context, k *kit, resource *unstructured.Unstructured) (outcome, error) {
		account := &corev1.ServiceAccount{ObjectMeta: k.meta(resource, "")}
		if err := k.once(ctx, resource, account); err != nil {
			return outcome{}, err
		}
		settings := &corev1.ConfigMap{ObjectMeta: k.meta(resource, "")}
		level := text(resource, "spec", "level")
		if err := k.ensure(ctx, resource, settings, func() { settings.Data = map[string]string{"level": level} }); err != nil {
			return outcome{}, err
		}
		set := &appsv1.DaemonSet{ObjectMeta: k.meta(resource, "")}
		labels := set.Labels
		if err := k.ensure(ctx, resource, set, func() {
			if set.CreationTimestamp.IsZero() {
				set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
				set.Spec.Template = template(labels, "example.com/agent:1")
				set.Spec.Template.Spec.ServiceAccountName = account.Name
				most := intstr.FromString("100%")
				set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
				set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &most}
			}
			set.Spec.Template.Annotations = map[string]string{"operators.hanse.test/level": level}
		}); err != nil {
			return outcome{}, err
		}
		status := set.Status
		fields := map[string]any{"nodes": int64(status.DesiredNumberScheduled), "available": int64(status.NumberAvailable)}
		done := status.ObservedGeneration == set.Generation && status.DesiredNumberScheduled > 0 &&
			status.UpdatedNumberScheduled == status.DesiredNumberScheduled && status.NumberAvailable == status.DesiredNumberScheduled
		if !done {
			return outcome{missing: "not all agents are there", fields: fields}, nil
		}
		return outcome{fields: fields}, nil
	},
}
