package main

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"hanse.test/clients/check"
)

func (w *world) checkDiscovery(suite *check.Suite) {
	suite.Run("discovery names groups and resources", w.groupsAndResources)
	suite.Run("a mapper maps names to kinds", w.mapper)
	suite.Run("the server names its version", func(t *check.T) {
		version, err := w.client.Discovery().ServerVersion()
		t.Must(err, "get the version")
		t.Want(version.Major == "1" && version.GitVersion != "", "a version, not %v", version)
	})
	suite.Run("OpenAPI is served in both forms", w.openAPI)
}

func (w *world) groupsAndResources(t *check.T) {
	groups, lists, err := w.client.Discovery().ServerGroupsAndResources()
	t.Must(err, "discover")
	t.Want(len(groups) >= 10, "ten groups at least, not %d", len(groups))
	t.Want(w.requests.matching("GET ", "/apis ", "v=v2;as=APIGroupDiscoveryList") > 0, "an aggregated answer")
	verbs := map[string]int{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			verbs[list.GroupVersion+" "+resource.Name] = len(resource.Verbs)
		}
	}
	for _, wanted := range []string{"v1 pods", "v1 pods/eviction", "v1 pods/binding", "v1 services/status", "apps/v1 deployments",
		"apps/v1 deployments/scale", "apps/v1 deployments/status", "batch/v1 cronjobs", "networking.k8s.io/v1 ingresses",
		"apiextensions.k8s.io/v1 customresourcedefinitions", "rbac.authorization.k8s.io/v1 clusterroles"} {
		t.Want(verbs[wanted] > 0, "%s", wanted)
	}
	preferred, err := discovery.ServerPreferredNamespacedResources(w.client.Discovery())
	t.Must(err, "discover what is preferred")
	deletable := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "delete"}}, preferred)
	t.Want(len(deletable) > 5, "resources that a garbage collector can follow")
}

func (w *world) mapper(t *check.T) {
	client := memory.NewMemCacheClient(w.client.Discovery())
	deferred := restmapper.NewDeferredDiscoveryRESTMapper(client)
	mapping, err := deferred.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	t.Must(err, "map a kind")
	t.Want(mapping.Resource == deployments, "deployments, not %v", mapping.Resource)
	t.Want(mapping.Scope.Name() == "namespace", "a namespaced resource")
	expander := restmapper.NewShortcutExpander(deferred, client, nil)
	for short, kind := range map[string]string{"cm": "ConfigMap", "deploy": "Deployment", "hpa": "HorizontalPodAutoscaler",
		"crd": "CustomResourceDefinition", "pdb": "PodDisruptionBudget", "svc": "Service", "netpol": "NetworkPolicy"} {
		found, err := expander.KindFor(schema.GroupVersionResource{Resource: short})
		t.Must(err, "map %s", short)
		t.Want(found.Kind == kind, "%s for %s, not %s", kind, short, found.Kind)
	}
	all, found := restmapper.NewDiscoveryCategoryExpander(client).Expand("all")
	t.Want(found && len(all) >= 8, "the category all, not %v", all)
}

func (w *world) openAPI(t *check.T) {
	schema, err := w.client.Discovery().OpenAPISchema()
	t.Must(err, "get version 2")
	t.Want(len(schema.GetDefinitions().GetAdditionalProperties()) > 100, "definitions")
	paths, err := w.client.Discovery().OpenAPIV3().Paths()
	t.Must(err, "get the index of version 3")
	for _, path := range []string{"api/v1", "apis/apps/v1"} {
		t.Want(paths[path] != nil, "%s", path)
		document, err := paths[path].Schema("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
		t.Must(err, "get %s", path)
		t.Want(len(document) > 1000, "a document for %s", path)
	}
}
