throw { not: 'an error' };
