module hanse.test/clients/check

go 1.26.0
