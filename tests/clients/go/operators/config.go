package main

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// replicator copies a ConfigMap to the namespaces that a label selects, also to those that come later.
var replicator = operator{
	kind: "Replication",
	hears: func(work *builder.Builder, k *kit) {
		all := func(ctx context.Context, _ client.Object) []reconcile.Request {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(group.WithKind("ReplicationList"))
			if err := k.List(ctx, list); err != nil {
				return nil
			}
			var requests []reconcile.Request
			for i := range list.Items {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
			return requests
		}
		work.Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(all)).
			Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(all))
	},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		source := &corev1.ConfigMap{}
		key := types.NamespacedName{Namespace: wanted.GetNamespace(), Name: text(wanted, "spec", "source")}
		if err := k.Get(ctx, key, source); err != nil {
			return outcome{missing: "there is no " + key.String()}, client.IgnoreNotFound(err)
		}
		selector, _, _ := unstructured.NestedStringMap(wanted.Object, "spec", "namespaces")
		namespaces := &corev1.NamespaceList{}
		if err := k.List(ctx, namespaces, client.MatchingLabels(selector)); err != nil {
			return outcome{}, err
		}
		for i := range namespaces.Items {
			if namespaces.Items[i].DeletionTimestamp != nil {
				continue
			}
			copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespaces.Items[i].Name, Name: source.Name}}
			if _, err := controllerutil.CreateOrUpdate(ctx, k.Client, copied, func() error {
				copied.Data, copied.Labels = maps.Clone(source.Data), k.labels(wanted, "")
				return nil
			}); err != nil {
				return outcome{}, err
			}
		}
		return outcome{fields: map[string]any{"copies": int64(len(namespaces.Items))}}, nil
	},
	finish: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (bool, error) {
		copies := &corev1.ConfigMapList{}
		if err := k.direct.List(ctx, copies, client.MatchingLabels(k.labels(wanted, ""))); err != nil {
			return false, err
		}
		for i := range copies.Items {
			if err := k.Delete(ctx, &copies.Items[i]); client.IgnoreNotFound(err) != nil {
				return false, err
			}
		}
		return true, nil
	},
}

// issuer signs certificates into Secrets, anew when their names change.
var issuer = operator{
	kind: "Certificate",
	owns: []client.Object{&corev1.Secret{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		names, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "names")
		secret := &corev1.Secret{ObjectMeta: k.meta(wanted, ""), Type: corev1.SecretTypeTLS}
		secret.Name = text(wanted, "spec", "secretName")
		issued := number(wanted, "status", "issued")
		err := k.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if client.IgnoreNotFound(err) != nil {
			return outcome{}, err
		}
		if apierrors.IsNotFound(err) || !isFor(secret.Data[corev1.TLSCertKey], names) {
			pair, err := sign(names, nil)
			if err != nil {
				return outcome{}, err
			}
			if err := k.ensure(ctx, wanted, secret, func() {
				secret.Data = map[string][]byte{corev1.TLSCertKey: pair.certificate, corev1.TLSPrivateKeyKey: pair.key, "ca.crt": pair.certificate}
			}); err != nil {
				return outcome{}, err
			}
			issued++
		}
		certificate, err := parse(secret.Data[corev1.TLSCertKey])
		if err != nil {
			return outcome{}, err
		}
		return outcome{fields: map[string]any{"issued": int64(issued), "notAfter": certificate.NotAfter.UTC().Format("2006-01-02T15:04:05Z"),
			"names": anys(certificate.DNSNames)}}, nil
	},
}

func anys(of []string) []any {
	var all []any
	for _, one := range of {
		all = append(all, one)
	}
	return all
}

// tenant keeps namespaces with limits and rights.
var tenant = operator{
	kind: "Tenant",
	owns: []client.Object{&corev1.Namespace{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		stages, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "stages")
		for _, stage := range stages {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: wanted.GetName() + "-" + stage, Labels: map[string]string{"tenant": wanted.GetName()}}}
			if err := k.once(ctx, wanted, namespace); err != nil {
				return outcome{}, err
			}
			if err := k.furnish(ctx, wanted, namespace.Name); err != nil {
				return outcome{}, err
			}
		}
		namespaces := &corev1.NamespaceList{}
		if err := k.List(ctx, namespaces, client.MatchingLabels{"tenant": wanted.GetName()}); err != nil {
			return outcome{}, err
		}
		ready := 0
		for i := range namespaces.Items {
			name := namespaces.Items[i].Name
			if !contains(stages, name[len(wanted.GetName())+1:]) {
				if err := k.Delete(ctx, &namespaces.Items[i]); err != nil {
					return outcome{}, err
				}
				continue
			}
			// The account is made by the server.
			err := k.direct.Get(ctx, types.NamespacedName{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
			if err == nil && namespaces.Items[i].Status.Phase == corev1.NamespaceActive {
				ready++
			}
		}
		if ready != len(stages) || len(namespaces.Items) != len(stages) {
			return outcome{missing: fmt.Sprintf("%d of %d namespaces", ready, len(stages)), again: second}, nil
		}
		return outcome{fields: map[string]any{"namespaces": int64(ready)}}, nil
	},
}

func contains(all []string, one string) bool {
	for _, it := range all {
		if it == one {
			return true
		}
	}
	return false
}

// furnish puts into a namespace what every one of a tenant has.
func (k *kit) furnish(ctx context.Context, wanted *unstructured.Unstructured, namespace string) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}
	quota := &corev1.ResourceQuota{ObjectMeta: meta}
	if err := k.ensure(ctx, wanted, quota, func() {
		quota.Spec.Hard = corev1.ResourceList{"count/configmaps": resource.MustParse(text(wanted, "spec", "configMaps"))}
	}); err != nil {
		return err
	}
	owner := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: text(wanted, "spec", "owner")}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta}
	if err := k.ensure(ctx, wanted, binding, func() {
		binding.Subjects = []rbacv1.Subject{owner}
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}
	}); err != nil {
		return err
	}
	limits := &corev1.LimitRange{ObjectMeta: meta, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}}}}}
	if err := k.once(ctx, wanted, limits); err != nil {
		return err
	}
	closed := &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}
	return k.once(ctx, wanted, closed)
}

// bucket makes something outside, here a ConfigMap in the operator's own namespace, which no owner reference reaches.
var bucket = operator{
	kind: "Bucket",
	owns: []client.Object{&corev1.Secret{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		outside := k.outside(wanted)
		if _, err := controllerutil.CreateOrPatch(ctx, k.Client, outside, func() error {
			outside.Data = map[string]string{"region": text(wanted, "spec", "region"), "versioned": fmt.Sprint(wanted.Object["spec"].(map[string]any)["versioned"])}
			return nil
		}); err != nil {
			return outcome{}, err
		}
		secret := &corev1.Secret{ObjectMeta: k.meta(wanted, "connection")}
		if err := k.ensure(ctx, wanted, secret, func() {
			secret.Data = map[string][]byte{"bucket": []byte(outside.Name), "region": []byte(outside.Data["region"])}
		}); err != nil {
			return outcome{}, err
		}
		return outcome{fields: map[string]any{"bucket": outside.Name, "region": outside.Data["region"], "secret": secret.Name}}, nil
	},
	finish: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (bool, error) {
		return true, client.IgnoreNotFound(k.Delete(ctx, k.outside(wanted)))
	},
}

func (k *kit) outside(wanted *unstructured.Unstructured) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: wanted.GetNamespace() + "-" + wanted.GetName()}}
}

// mirror gives names to what runs elsewhere: a Service without pods and the slice of its endpoints, or another name.
var mirror = operator{
	kind: "Mirror",
	owns: []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		alias := &corev1.Service{ObjectMeta: k.meta(wanted, "alias")}
		if err := k.ensure(ctx, wanted, alias, func() {
			alias.Spec.Type, alias.Spec.ExternalName = corev1.ServiceTypeExternalName, text(wanted, "spec", "host")
		}); err != nil {
			return outcome{}, err
		}
		service := &corev1.Service{ObjectMeta: k.meta(wanted, "")}
		if err := k.ensure(ctx, wanted, service, func() {
			if service.CreationTimestamp.IsZero() {
				service.Spec.Ports = []corev1.ServicePort{{Name: "main", Port: 443, Protocol: corev1.ProtocolTCP}}
			}
		}); err != nil {
			return outcome{}, err
		}
		addresses, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "addresses")
		slice := &discoveryv1.EndpointSlice{ObjectMeta: k.meta(wanted, "")}
		if err := k.ensure(ctx, wanted, slice, func() {
			slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy] = service.Name, k.name
			slice.AddressType = discoveryv1.AddressTypeIPv4
			slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("main"), Port: ptr.To[int32](443), Protocol: ptr.To(corev1.ProtocolTCP)}}
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
		}); err != nil {
			return outcome{}, err
		}
		if service.Spec.ClusterIP == "" {
			return outcome{missing: "the Service has no address", again: second}, nil
		}
		return outcome{fields: map[string]any{"host": alias.Spec.ExternalName, "endpoints": int64(len(addresses))}}, nil
	},
}

// singleton counts what it is told to count in a ConfigMap, one after the other: two at work at once would be seen.
var singleton = operator{
	kind:   "Counter",
	owns:   []client.Object{&corev1.ConfigMap{}},
	elects: true,
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		counted, until := number(wanted, "status", "counted"), number(wanted, "spec", "until")
		if counted < until {
			counted++
			tally := &corev1.ConfigMap{ObjectMeta: k.meta(wanted, "")}
			twice := false
			if err := k.ensure(ctx, wanted, tally, func() {
				if tally.Data == nil {
					tally.Data = map[string]string{}
				}
				entry := fmt.Sprintf("%03d", counted)
				_, twice = tally.Data[entry]
				tally.Data[entry] = "once"
			}); err != nil {
				return outcome{}, err
			}
			seen := number(wanted, "status", "twice")
			if twice {
				seen++
			}
			fields := map[string]any{"counted": int64(counted), "twice": int64(seen)}
			return outcome{missing: "it counts", fields: fields, again: second / 5}, nil
		}
		return outcome{fields: map[string]any{"counted": int64(counted), "twice": int64(number(wanted, "status", "twice"))}}, nil
	},
}

func isFor(certificate []byte, names []string) bool {
	parsed, err := parse(certificate)
	return err == nil && fmt.Sprint(parsed.DNSNames) == fmt.Sprint(names)
}
