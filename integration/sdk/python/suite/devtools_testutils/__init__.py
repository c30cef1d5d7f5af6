"""Stands for a package of the Azure SDK's repository that no registry carries, as far as the tests of azure-cosmos
use it beside an emulator."""
